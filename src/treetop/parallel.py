"""Work cut into shards: threads here, Ray there, the same bytes. Knows no contents.

A task is a function of a module that gets one shard (paths and a few numbers) and returns a path or as little. It is
pure: whatever it writes, it writes whole (`write_piece`), and running it twice, or twice at a time, changes nothing.
So it is retried freely, and the order in which tasks end does not matter. Large things go through files that all
machines see, never through the arguments.
"""

from __future__ import annotations

import os
import pickle
import socket
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Generic, Protocol, TypeVar

from treetop._version import __version__
from treetop.arrays import check_float, check_int
from treetop.errors import ClusterError, ShardError
from treetop.files import sync, sync_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from treetop.effort import Progress

LARGEST = 64 * 1024  # bytes of a shard or of what a task returns: what is larger goes through a file
AHEAD = 256  # tasks that Ray knows of at a time
CONNECT_TIMEOUT = 10.0  # seconds
TICK = 0.1  # seconds between two looks
OTHER_TOKEN = (  # Ray does not say so: it waits and gives up
    "; if it runs, it has another token or another version of Ray: RAY_AUTH_MODE, and RAY_AUTH_TOKEN or "
    "~/.ray/auth_token, must be the same on all machines"
)
THREADS_VARIABLE = "TREETOP_THREADS"  # what "all cores" means to the kernels of a process
S = TypeVar("S")
P = TypeVar("P")


def all_cores() -> int:
    """What 0 threads mean, here as in the kernels: the cores of the machine, or fewer if TREETOP_THREADS says so.

    >>> all_cores() >= 1
    True
    """
    cores, most = os.cpu_count() or 1, os.environ.get(THREADS_VARIABLE, "")
    return min(cores, int(most)) if most.isdecimal() and int(most) > 0 else cores


@dataclass(frozen=True)
class Machines:
    """Where tasks run: on `workers` threads here (0: one a core), or on the Ray cluster at `ray`, `cpus` a task.

    `ray` is "" for here, "auto" for the cluster that this machine belongs to, or an address such as
    "ray://head:10001". A task that fails is tried again after each of the `pauses` (seconds), then it is an error.

    >>> Machines(ray="head:6379x")
    Traceback (most recent call last):
    ValueError: ray is 'head:6379x'; it must be "", "auto", "ray://host:port" or "host:port"
    """

    ray: str = ""
    workers: int = 0
    cpus: int = 1
    pauses: tuple[float, ...] = (1.0, 5.0)

    def __post_init__(self) -> None:
        check_ray_address(self.ray)
        check_int("workers", self.workers, 0, 4096)
        check_int("cpus", self.cpus, 1, 4096)
        for pause in self.pauses:
            check_float("pause", pause, 0, 3600)

    @property
    def width(self) -> int:
        """How many tasks run at a time here."""
        return self.workers or os.cpu_count() or 1

    @property
    def threads(self) -> int:
        """How many threads a task should use: its share of this machine, or what Ray gave it.

        >>> Machines("auto", cpus=2).threads
        2
        """
        return self.cpus if self.ray else max(1, (os.cpu_count() or 1) // self.width)


def check_ray_address(address: object) -> str:
    """The address of a cluster as Ray takes it; "" for none.

    >>> check_ray_address("auto"), check_ray_address("ray://head:10001")
    ('auto', 'ray://head:10001')
    """
    if not isinstance(address, str):
        raise TypeError(f"ray must be a str, not {address!r}")
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if address in ("", "auto") or (host and colon and port.isascii() and port.isdigit() and int(port) < 65536):
        return address
    raise ValueError(f'ray is {address!r}; it must be "", "auto", "ray://host:port" or "host:port"')


def map_shards(
    task: Callable[[S], P], shards: Sequence[S], machines: Machines = Machines(), progress: Progress | None = None
) -> list[P]:
    """What `task` returns for each shard, in the order of the shards, wherever and however often it was run.

    `progress(done, total)` is called about ten times a second and may raise to stop. A shard whose task failed as often
    as `machines` allows ends everything with `ShardError`; tasks under way are ended or waited for.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     files = [f"{folder}/{name}" for name in "abc"]
    ...     for file in files:
    ...         Path(file).touch()
    ...     [Path(path).name for path in map_shards(os.path.realpath, files)]
    ['a', 'b', 'c']
    """
    parcels = [_parcel(task, shard) for shard in shards]
    if not parcels:
        return []
    with _on_ray(machines) if machines.ray else _on_threads(machines) as pool:
        return _Run[P](pool, parcels, [_name(shard) for shard in shards], machines.pauses).play(progress)


def write_piece(path: Path, write: Callable[[BinaryIO], object]) -> Path:
    """Writes a file beside its place and renames it, as `files.put` does, but two attempts at a time do not meet.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     piece = write_piece(Path(folder, "piece"), lambda file: file.write(b"hello"))
    ...     [(path.name, path.read_bytes()) for path in Path(folder).iterdir()]
    [('piece', b'hello')]
    """
    part = path.with_name(f"{path.name}.{socket.gethostname()}-{os.getpid()}-{time.time_ns()}.part")
    try:
        with part.open("xb") as file:
            write(file)
            sync(file)
        part.replace(path)
    except BaseException:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)
    return path


@dataclass(frozen=True)
class _Outcome:
    """What a worker says of an attempt, in plain words: an exception need not survive the journey."""

    value: Any = None
    error: str = ""  # "" if it went well
    details: str = ""
    hopeless: bool = False  # trying again cannot help


def _parcel(task: Callable[[Any], Any], shard: object) -> bytes:
    raw = pickle.dumps((task, shard))
    if len(raw) > LARGEST:
        raise ValueError(f"a shard takes {len(raw):,} bytes; at most {LARGEST:,}: give a task paths, not contents")
    return raw


def _name(shard: object) -> str:
    text = str(shard)
    return text if len(text) <= 200 else f"{text[:200]}..."


def _attempt(parcel: bytes, version: str, threads: int = 0) -> _Outcome:
    """Runs a task where it arrived; in a process of Ray's own, whose kernels then take so many threads at most."""
    if threads:
        os.environ[THREADS_VARIABLE] = str(threads)
    if version != __version__:
        here = f"{socket.gethostname()} has treetop {__version__}, the driver {version}"
        return _Outcome(error=f"{here}: install the same one everywhere", hopeless=True)
    try:
        task, shard = pickle.loads(parcel)
        value = task(shard)
        size = len(pickle.dumps(value))
    except Exception as error:
        return _Outcome(error=f"{type(error).__name__}: {error}", details=traceback.format_exc())
    if size > LARGEST:
        words = f"the task returned {size:,} bytes; at most {LARGEST:,}: write a file and return its path"
        return _Outcome(error=words, hopeless=True)
    return _Outcome(value)


class _Pool(Protocol):
    """Where attempts run: a ticket for each, those that ended within a tick, and what became of one."""

    @property
    def ahead(self) -> int: ...
    def submit(self, parcel: bytes) -> Any: ...
    def ended(self, tickets: Iterable[Any]) -> Iterable[Any]: ...
    def outcome(self, ticket: Any) -> _Outcome: ...


class _Run(Generic[P]):
    """One call of `map_shards`: what waits, what runs, what failed how often."""

    def __init__(self, pool: _Pool, parcels: list[bytes], names: list[str], pauses: tuple[float, ...]) -> None:
        self.pool, self.parcels, self.names, self.pauses = pool, parcels, names, pauses
        self.values: list[Any] = [None] * len(parcels)
        self.failures = [0] * len(parcels)
        self.waiting = deque(range(len(parcels)))
        self.resting: list[tuple[float, int]] = []  # (when it may be tried again, shard)
        self.running: dict[Any, int] = {}

    def play(self, progress: Progress | None) -> list[P]:
        done, total = 0, len(self.parcels)
        while done < total:
            self._start()
            for ticket in self._ended():
                done += self._settle(self.running.pop(ticket), self.pool.outcome(ticket))
            if progress:
                progress(done, total)
        return self.values

    def _start(self) -> None:
        now = time.monotonic()
        self.waiting.extendleft(index for due, index in self.resting if due <= now)
        self.resting = [(due, index) for due, index in self.resting if due > now]
        while self.waiting and len(self.running) < self.pool.ahead:
            index = self.waiting.popleft()
            self.running[self.pool.submit(self.parcels[index])] = index

    def _ended(self) -> list[Any]:
        if self.running:
            return list(self.pool.ended(self.running))
        time.sleep(TICK)
        return []

    def _settle(self, index: int, outcome: _Outcome) -> bool:
        """Whether the shard is done; raises if it never will be."""
        if not outcome.error:
            self.values[index] = outcome.value
            return True
        self.failures[index] += 1
        times = self.failures[index]
        if outcome.hopeless or times > len(self.pauses):
            which = f"shard {index + 1:,} of {len(self.parcels):,} ({self.names[index]})"
            often = "once" if times == 1 else f"{times} times"
            raise ShardError(f"{which} failed {often}, the last time with {outcome.error}", outcome.details)
        self.resting.append((time.monotonic() + self.pauses[times - 1], index))
        return False


@dataclass(frozen=True)
class _Threads:
    executor: ThreadPoolExecutor
    ahead: int

    def submit(self, parcel: bytes) -> Future[_Outcome]:
        return self.executor.submit(_attempt, parcel, __version__)

    def ended(self, tickets: Iterable[Future[_Outcome]]) -> Iterable[Future[_Outcome]]:
        return wait(tickets, TICK, FIRST_COMPLETED).done

    def outcome(self, ticket: Future[_Outcome]) -> _Outcome:
        return ticket.result()


@contextmanager
def _on_threads(machines: Machines) -> Iterator[_Pool]:
    executor = ThreadPoolExecutor(machines.width, "shard")
    try:
        yield _Threads(executor, machines.width)
    finally:
        executor.shutdown(cancel_futures=True)


@dataclass(frozen=True)
class _Ray:
    """Ray retries nothing itself: a lost worker or node counts like any other failure."""

    ray: Any
    remote: Any
    cpus: int
    tickets: set[Any]
    ahead: int = AHEAD

    def submit(self, parcel: bytes) -> Any:
        ticket = self.remote.remote(parcel, __version__, self.cpus)
        self.tickets.add(ticket)
        return ticket

    def ended(self, tickets: Iterable[Any]) -> Iterable[Any]:
        ended, others = self.ray.wait(list(tickets), num_returns=1, timeout=TICK)
        more = self.ray.wait(others, num_returns=len(others), timeout=0)[0] if ended and others else []
        return [*ended, *more]

    def outcome(self, ticket: Any) -> _Outcome:
        self.tickets.discard(ticket)
        try:
            outcome: _Outcome = self.ray.get(ticket)
        except self.ray.exceptions.RayError as error:
            first = str(error).strip().partition("\n")[0]
            return _Outcome(error=f"{type(error).__name__}: {first}", details=str(error))
        return outcome


@contextmanager
def _on_ray(machines: Machines) -> Iterator[_Pool]:
    ray = _connect(machines.ray)
    remote = ray.remote(_attempt).options(num_cpus=machines.cpus, max_retries=0)
    pool = _Ray(ray, remote, machines.cpus, set())
    try:
        yield pool
    finally:
        for ticket in pool.tickets:  # of a call that failed or was stopped
            with suppress(Exception):
                ray.cancel(ticket, force=True)


def _connect(address: str) -> Any:
    """Ray, connected to the cluster at `address`; a connection that this process has already is used as it is.

    It stays until the process ends, or calls `ray.shutdown`.
    """
    try:
        import ray
    except ModuleNotFoundError:
        raise ClusterError("many machines need Ray: pip install 'treetop-bandits[ray]'") from None
    if not ray.is_initialized():
        hint = ""
        try:
            _knock(address)
            hint = OTHER_TOKEN
            ray.init(address=address, log_to_driver=False, configure_logging=False)
        except Exception as error:  # Ray has many, and none in common
            first = str(error).strip().partition("\n")[0].rstrip(".")
            raise ClusterError(f"no Ray cluster answers at {address!r}: {first}{hint}") from error
    return ray


def _knock(address: str) -> None:
    """Raises OSError if nobody listens there: Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_TIMEOUT).close()
