"""The log of a bandit as a history on disk, which a refit reads part by part: segments are not copied, only linked."""

from __future__ import annotations

import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from treetop.bandit.arm_index import ArmIndex
from treetop.bandit.config import Config
from treetop.bandit.folder import BanditFolder
from treetop.bandit.sealing import UNUSABLE, note_unused, segment_folder
from treetop.bandit.snapshot import tree_id
from treetop.bandit.stored_sums import late_arms, stored_sums
from treetop.errors import LogError, NothingToLearn, SegmentError
from treetop.learning.component_weights import RECENT
from treetop.learning.examination import LATEST, corrected, if_examined
from treetop.learning.history import History, HistoryWriter
from treetop.learning.saturation import learned_saturation, unsaturated
from treetop.learning.summed_rounds import SummedRounds
from treetop.log.base import Log
from treetop.log.records import PAST_COMPONENTS, Mark
from treetop.log.rounds import LoggedRounds, gather
from treetop.log.segments.manifest import SegmentFolder
from treetop.log.segments.reading import SealedLog, SealedRounds, sealed_log
from treetop.model.model import Model
from treetop.records import Feedback

WORK = "refit-work"
OF_ROUNDS = [field.name for field in fields(LoggedRounds) if field.name not in ("start", "index", "value", "replaced")]


@contextmanager
def work_folder(folder: BanditFolder) -> Iterator[Path]:
    """An empty folder for one refit at a time, gone at the end; what a killed refit left is deleted before.

    Its name is new each time: a task of a killed refit that still runs somewhere finds no place to write.

    >>> with tempfile.TemporaryDirectory() as place:
    ...     with work_folder(BanditFolder(Path(place))) as work:
    ...         work.is_dir()
    ...     work.exists()
    True
    False
    """
    every = (folder.path / WORK).resolve()  # other machines may read it
    clear_work(folder)
    every.mkdir(mode=0o700)
    try:
        yield Path(tempfile.mkdtemp(prefix="", dir=every))
    finally:
        shutil.rmtree(every, ignore_errors=True)


def clear_work(folder: BanditFolder) -> None:
    """Deletes what a killed refit left. Nobody may be refitting.

    >>> with tempfile.TemporaryDirectory() as place:
    ...     (Path(place) / WORK / "left").mkdir(parents=True)
    ...     clear_work(BanditFolder(Path(place)))
    ...     list(Path(place).iterdir())
    []
    """
    if (folder.path / WORK).exists():
        shutil.rmtree(folder.path / WORK)


def logged_history(
    log: Log, until: Mark, base: Model, arms: ArmIndex, config: Config, folder: BanditFolder, work: Path
) -> History:
    """All feedback in a log up to a mark, for the model that follows `base`, as a history in a folder; sealed rounds
    from the bandit's segments. Where these cannot be used, that is noted, and all of it is read from the log, with the
    same result. Raises NothingToLearn if there is no decision.

    >>> from treetop.bandit.bandit import Bandit
    >>> with tempfile.TemporaryDirectory() as place, Bandit.create(f"{place}/tea", X=np.eye(4), Y=np.eye(4)) as tea:
    ...     _ = tea.decide(np.ones(4), k=2)
    ...     mark, now = tea.log.seal("today"), tea.snapshot
    ...     with work_folder(tea.folder) as work:
    ...         len(logged_history(tea.log, mark, now.model, now.arms, tea.config, tea.folder, work))
    1
    """
    segments, path = segment_folder(folder), work / "history"

    def written(alone: bool) -> History | None:
        try:
            with _usable_log(segments, log, until.position, alone) as sealed:
                history = _written(sealed, until, base, arms, config, path)
                if folder.shared is not None:  # what others sum up, they then delete from the log
                    folder.shared.sums.check(None if sealed.manifest is None else sealed.manifest.sums)
                return history
        except SegmentError as error:
            note_unused(folder, error)
            shutil.rmtree(path, ignore_errors=True)
            return None

    for alone in (False, True) if config.segments.seal else ():  # what is summed up counts, whatever else is damaged
        if (found := written(alone)) is not None:
            return found
    return _written(SealedLog(segments, log, None, None, alone=True), until, base, arms, config, path)


def _written(sealed: SealedLog, until: Mark, base: Model, arms: ArmIndex, config: Config, path: Path) -> History:
    rewards, past = config.rewards, stored_sums(sealed, config)
    paper = config.learner.name == "paper"
    tree = tree_id(base.tree) if paper else None  # only the paper's learner uses nodes

    def read() -> SealedRounds:
        return _usable(sealed.rounds(until, rewards.reward_wait, rewards.default_reward, tree))

    examined = () if paper else _examined(read, base, config) if rewards.positions else None
    history = _written_by(read, base, arms, config, path, examined, past)
    if history is None:
        shutil.rmtree(path)
        history = _written_by(read, base, arms, config, path, _examined(read, base, config), past)
    assert history is not None
    return history


@contextmanager
def _usable_log(folder: SegmentFolder, log: Log, until: int, alone: bool) -> Iterator[SealedLog]:
    """What is sealed; whatever keeps it from being opened is a SegmentError."""
    with ExitStack() as stack:
        try:
            found = stack.enter_context(sealed_log(folder, log, until, alone))
        except LogError:
            raise
        except UNUSABLE as error:
            raise SegmentError(str(error)) from error
        yield found


def _usable(chunks: SealedRounds) -> SealedRounds:
    """The chunks; whatever keeps segments from being read is a SegmentError. What a reader runs into is not."""
    try:
        yield from chunks
    except LogError:
        raise
    except UNUSABLE as error:
        raise SegmentError(str(error)) from error


def _written_by(
    read: Callable[[], SealedRounds],
    base: Model,
    arms: ArmIndex,
    config: Config,
    path: Path,
    examined: tuple[float, ...] | None,
    past: SummedRounds | None,
) -> History | None:
    """The history with rewards corrected for positions; None if there are some and nobody has looked at them yet (for
    the paper's learner nobody needs to). And for what stands above, by what the model before has learned of that: how
    much it is now is told from the result."""
    columns, rewards, since = base.n_features, config.rewards, arms.epochs()
    writer: HistoryWriter | None = None
    recent: deque[LoggedRounds] = deque()
    freed = partial(unsaturated, base) if rewards.saturates else _as_is
    with closing(read()) as chunks:  # whatever happens, nobody waits for the segments
        for chunk, segment, summed in chunks:
            if writer is None:
                first = int(chunk.epochs[0]) if past is None else past.first_epoch
                late, paper = late_arms(since, first, base.n_arms), config.learner.name == "paper"
                writer = HistoryWriter(path, columns, late, past, nodes=paper)
            files = () if segment is None else [segment / f"context_{name}.npy" for name in ("start", "index", "value")]
            rounds = gather([chunk], columns, None, rewards.limits, rewards.positions)
            if examined is None and rounds.positions is not None:
                return None
            writer.add(freed(corrected(rounds, examined or ())), files, summed)
            if summed:
                continue
            recent.append(_slots(chunk))
            while sum(map(len, recent)) - len(recent[0]) >= RECENT:
                recent.popleft()
    if writer is None:
        raise NothingToLearn("there is no decision in the log to learn from")
    last = corrected(gather(recent, columns, None, rewards.limits, rewards.positions), examined or ())
    saturation = learned_saturation(base, last) if rewards.saturates else 0.0
    return writer.done(freed(last), examined or (), saturation)


def _as_is(feedback: Feedback) -> Feedback:
    return feedback


def _examined(read: Callable[[], SealedRounds], base: Model, config: Config) -> tuple[float, ...]:
    """How often positions are looked at, as `if_examined` finds it of all rounds: the latest slots say it.

    Of every chunk only rounds with a slot that counts are kept, and the newest decision of a model, which says how many
    components there are.
    """
    rewards, latest, count = config.rewards, deque[tuple[int, LoggedRounds]](), 0
    newest: tuple[LoggedRounds, ...] = ()
    with closing(read()) as chunks:
        for chunk, _, _ in chunks:
            rounds = gather([_slots(chunk)], base.n_features, None, rewards.limits, rewards.positions)
            if len(models := np.flatnonzero(chunk.component_counts > PAST_COMPONENTS)):
                last = _slots(chunk, models[-1:])
                newest = (replace(last, rewards=np.full_like(last.rewards, np.nan)),)
            if rounds.positions is not None and (known := rounds.observed & (rounds.positions > 0)).any():
                latest.append((int(known.sum()), _slots(chunk, np.flatnonzero(known.any(axis=1)))))
                count += latest[-1][0]
            while latest and count - latest[0][0] >= LATEST:
                count -= latest.popleft()[0]
    kept = [*(slots for _, slots in latest), *newest]
    return if_examined(base, gather(kept, base.n_features, None, rewards.limits, rewards.positions))[1]


def _slots(chunk: LoggedRounds, rows: Any = slice(None)) -> LoggedRounds:
    """Some of the rounds, without contexts and what they had before."""
    own = {name: getattr(chunk, name)[rows] for name in OF_ROUNDS}
    start = np.zeros(len(own["positions"]) + 1, np.int64)
    return LoggedRounds(start=start, index=np.zeros(0, np.int32), value=np.zeros(0, np.float32), **own)
