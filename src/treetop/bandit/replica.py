"""One bandit on several hosts: what all of its replicas serve, and how a folder gives and takes it.

Every replica has a folder of its own; they share a log and a store. The log holds a manifest: the content of `current`,
and the pieces in the store that its files consist of. Whoever changes the bandit writes pieces first, then replaces the
manifest if it is still the one that the change was made from, then its own `current`. The others follow.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from treetop.bandit.config import Config
from treetop.bandit.config_file import CONFIG, put_policy
from treetop.bandit.folder import ATTRIBUTES, CATALOGUE, CURRENT, LABEL_SAMPLES, LOG, MODELS, VOCABULARY, BanditFolder
from treetop.bandit.pieces import Pieces, delete, extend, names, retire, total, upload
from treetop.bandit.shared_sums import SharedSums
from treetop.bandit.state import FolderState
from treetop.bandit.stores import Store, open_store
from treetop.errors import FolderInUse, ForeignLog, LogError, ReplicaConflict
from treetop.files import put, sync_folder
from treetop.log.base import Log
from treetop.log.open import open_log

NAME = "replicas"  # of the manifest in the log
RESERVED = "replicas reserved"  # under which the log has who alone may change the manifest for a while
PATIENCE = 600.0  # seconds that a reservation is heeded after it was made, by whoever sees it
MOST_PIECES = 64  # of a file that grows; then it is written anew
GROWING = (CATALOGUE, ATTRIBUTES)


@dataclass(frozen=True)
class Manifest:
    """What all replicas serve: the content of `current`, files by their path in the folder, pieces that are retired.

    >>> Manifest.read(Manifest("{}", {"config.toml": [["ab12", 7]]}, {}).text()).files
    {'config.toml': [['ab12', 7]]}
    """

    current: str
    files: Mapping[str, Pieces]
    retired: Mapping[str, float] = field(default_factory=dict)  # name: since when no manifest has it

    @classmethod
    def read(cls, text: bytes) -> Manifest:
        try:
            return cls(**json.loads(text))
        except (ValueError, TypeError) as error:
            raise LogError(f"the manifest of the replicas cannot be read: {error}") from None

    def text(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    def names(self) -> set[str]:
        """The pieces of all files."""
        return names(self.files)

    def below(self, folder: str) -> dict[str, Pieces]:
        """The files of one folder in the folder."""
        return {path: pieces for path, pieces in self.files.items() if path.startswith(f"{folder}/")}


@dataclass(frozen=True)
class Replica:
    """The shared side of a bandit's folder: `BanditFolder` calls it before and after it changes `current`."""

    store: Store
    log: Log
    own: set[bytes] = field(default_factory=set)

    @property
    def sums(self) -> SharedSums:
        """What the replicas' rounds add up to that windows and retention have forgotten."""
        return SharedSums(self.store, self.log)

    @contextmanager
    def reserved(self) -> Iterator[None]:
        """Nobody else changes what all replicas serve meanwhile: their changes raise ReplicaConflict.

        For a change that takes long to write and has lost to quicker ones. One that dies here holds up the others for
        PATIENCE seconds: the token begins with when it was made, by the clock of the machine.
        """
        token = struct.pack("<d", time.time()) + os.urandom(16)
        self.own.add(token)
        self.log.keep(RESERVED, token)
        try:
            yield
        finally:
            self.log.drop(RESERVED, token)
            self.own.discard(token)

    def _check_reserved(self) -> None:
        token = self.log.kept(RESERVED)
        if token is None or token in self.own:
            return
        since = time.time() - struct.unpack("<d", token[:8])[0]
        if abs(since) < PATIENCE:  # clocks differ
            raise ReplicaConflict(f"another replica has been publishing a refit for {max(0.0, since):.0f} s: try again")
        self.log.drop(RESERVED, token)  # of a process that died

    def manifest(self) -> Manifest | None:
        """What all replicas serve; None before the first of them has begun."""
        found = self.log.kept(NAME)
        return Manifest.read(found) if found else None

    def begin(self, folder: Path, state: FolderState) -> bool:
        """Shares a folder as it is, unless another replica has begun; returns whether this one did."""
        if self.manifest() is not None:
            return False
        fixed = [folder / CONFIG, folder / VOCABULARY, *sorted((folder / LABEL_SAMPLES).glob("*"))]
        files = {
            path.relative_to(folder).as_posix(): upload(self.store, path, set()) for path in fixed if path.exists()
        }
        try:
            self._replace(None, Manifest(state.text().decode(), {**files, **self._files(folder, state, {})}))
        except ReplicaConflict:
            return False
        return True

    def push(self, folder: Path, old: FolderState, new: FolderState) -> None:
        """Makes a state what all replicas serve. Raises ReplicaConflict if they do not serve the `old` one any more."""
        self._check_reserved()
        before = self.manifest()
        if before is None or FolderState.read(before.current.encode()) != old:  # whatever version wrote it
            raise ReplicaConflict("another replica has changed the bandit: try again")
        kept = {path: pieces for path, pieces in before.files.items() if not _changes(path)}
        files = {**kept, **self._files(folder, new, before.files)}
        after = Manifest(new.text().decode(), files)
        retired, late = retire(before.names(), before.retired, after.names(), time.time())
        self._replace(before, replace(after, retired=retired))
        delete(self.store, late)

    def fetch_models(self, folder: Path, found: Manifest) -> None:
        """Brings the models that a manifest has and the folder has not."""
        for name in FolderState.read(found.current.encode()).models:
            if not (folder / MODELS / name).is_dir():
                self._fetch_model(folder, name, found)

    def fetch_arms(self, folder: Path, here: FolderState, found: Manifest) -> None:
        """Brings arms and attributes that a manifest has beyond the state of a folder, which nobody changes meanwhile;
        `current` is left to the caller."""
        there = FolderState.read(found.current.encode())
        if there.bandit != here.bandit:
            raise ForeignLog(f"the replicas serve bandit {there.bandit}, {folder} is bandit {here.bandit}")
        if there.catalogue < here.catalogue or there.next_epoch < here.next_epoch:
            raise ForeignLog(f"{folder} is newer than what the replicas serve: it was changed without them")
        for path, have, want in (
            (CATALOGUE, here.catalogue, there.catalogue),
            (ATTRIBUTES, here.attributes, there.attributes),
        ):
            if want > have:
                extend(self.store, folder / path, have, found.files[path])

    def _files(self, folder: Path, state: FolderState, known: Mapping[str, Pieces]) -> dict[str, Pieces]:
        """The pieces of all files that change, those that are not known uploaded."""
        there = names(known)
        files = {}
        for name in state.models:
            for path in sorted((folder / MODELS / name).iterdir()):
                key = path.relative_to(folder).as_posix()
                files[key] = known[key] if key in known else upload(self.store, path, there)
        for key, size in ((CATALOGUE, state.catalogue), (ATTRIBUTES, state.attributes)):
            if size:
                files[key] = self._grown(folder / key, size, known.get(key, []), there)
        return files

    def _grown(self, path: Path, size: int, pieces: Pieces, there: set[str]) -> Pieces:
        have = total(pieces)
        if have > size or len(pieces) >= MOST_PIECES:
            pieces, have = [], 0
        return pieces + upload(self.store, path, there, have, size)

    def _replace(self, before: Manifest | None, after: Manifest) -> None:
        expected = None if before is None else before.text()

        def change(found: bytes | None) -> bytes:
            return after.text() if found == expected else found or b""

        if self.log.keep_changed(NAME, change) != after.text():
            self._retire(after.names() - (set() if before is None else before.names()))
            raise ReplicaConflict("another replica has changed the bandit at the same moment: try again")

    def _retire(self, some: set[str]) -> None:
        """Lets pieces that were written for nothing be deleted later. Not now: another replica may have the same."""

        def change(found: bytes | None) -> bytes:
            if not found:
                return b""
            manifest = Manifest.read(found)
            retired = {**dict.fromkeys(some - manifest.names(), time.time()), **manifest.retired}
            return replace(manifest, retired=retired).text()

        self.log.keep_changed(NAME, change)

    def _fetch_model(self, folder: Path, name: str, found: Manifest) -> None:
        work = folder / MODELS / f".fetched-{name}"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        for path, pieces in found.below(f"{MODELS}/{name}").items():
            extend(self.store, work / Path(path).name, 0, pieces)
        sync_folder(work)
        work.rename(folder / MODELS / name)
        sync_folder(folder / MODELS)


def shared_folder(folder: BanditFolder, config: Config, log: Log) -> BanditFolder:
    """The folder as one of several replicas, if the settings say so: begun, or brought to what the others serve.

    A store that cannot be read now is no reason not to serve: the folder follows later. Raises ValueError if the log is
    the folder's own file.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as place, open_log(f"{place}/log.sqlite") as log:
    ...     shared_folder(BanditFolder(Path(place)), Config(), log).shared is None
    True
    """
    if not config.replicas.store:
        return folder
    check_log(folder.path, config, log.where)
    replica = Replica(open_store(config.replicas.store), log)
    shared = replace(folder, shared=replica)
    if not replica.begin(folder.path, folder.state()):
        with suppress(OSError, FolderInUse):
            shared.follow()
    return shared


def check_log(folder: Path, config: Config, log: str) -> None:
    """Raises ValueError if a folder of several replicas would have a log of its own, which the others do not see.

    >>> from treetop.bandit.config import ReplicaConfig
    >>> check_log(Path("/srv/shop"), Config(replicas=ReplicaConfig("/mnt/shop")), "postgresql://db/shop")
    """
    if config.replicas.store and Path(log).resolve() == (folder / LOG).resolve():
        raise ValueError(f"[replicas] store needs the log that all replicas share: give it with --log, not {log}")


def join(folder: Path, store: str, log: str) -> FolderState:
    """Makes the folder of a new replica from what the others serve, whole or not at all.

    `store` and `log` are where the others have them. Raises FileExistsError if the folder is there and not empty,
    LogError if there is no such log.

    >>> from tempfile import TemporaryDirectory
    >>> from treetop.bandit.bandit import Bandit
    >>> from treetop.bandit.config import ReplicaConfig
    >>> with TemporaryDirectory() as place:
    ...     config = Config(replicas=ReplicaConfig(f"{place}/store"))
    ...     with Bandit.create(f"{place}/here", ["mint", "rose"], config=config, log=f"{place}/log") as tea:
    ...         _ = join(Path(place, "there"), f"{place}/store", f"{place}/log")
    ...         with Bandit.open(f"{place}/there", f"{place}/log") as again:
    ...             again.remove_arms(["rose"])
    ...         tea.folder.follow(), tea.refresh(), tea.decide({}).arms
    (True, True, ['mint'])
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(f"{folder} is there and not empty")
    if "://" not in log and not Path(log).is_file():  # opening one would make it
        raise LogError(f"there is no log {log}; it must be the one that the others are served with")
    with open_log(log) as opened:
        replica = Replica(open_store(store), opened)
        found = replica.manifest()
        if found is None:
            first = f"set [replicas] store in the {CONFIG} of a bandit and serve it with this log first"
            raise ValueError(f"the log {opened.where} has no replicas: {first}")
        state = FolderState.read(found.current.encode())
        work = folder.with_name(f".{folder.name}.joining-{os.getpid()}")
        try:
            (work / MODELS).mkdir(parents=True)
            for path, pieces in found.files.items():
                if not _changes(path):
                    (work / path).parent.mkdir(exist_ok=True)
                    extend(replica.store, work / path, 0, pieces)
            if state.policy is not None:  # the settings are those of the first replica, and what was promoted since
                put_policy(work / CONFIG, state.policy)
            blank = FolderState(state.bandit, state.model, 0, 0, state.models)
            replica.fetch_models(work, found)
            replica.fetch_arms(work, blank, found)
            put(work / CURRENT, lambda file: file.write(found.current.encode()))
            BanditFolder(work).note("joined", model=state.model)
            if folder.exists():
                folder.rmdir()
            work.rename(folder)
            sync_folder(folder.parent)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return state


def _changes(path: str) -> bool:
    """Whether a file of the folder is one of a model, or grows; the others are as they were created."""
    return path in GROWING or path.startswith(f"{MODELS}/")
