"""The seam on threads: what comes back, what is retried, what is refused. On Ray: tests/cluster."""

from __future__ import annotations

import hashlib
import sys
import threading
from pathlib import Path

import pytest
from helpers.shard_tasks import attempts, digest, digest_after_failures, large

from treetop.errors import ClusterError, ShardError
from treetop.parallel import LARGEST, Machines, map_shards, write_piece

SOON = Machines(workers=2, pauses=(0.0, 0.0))


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    for i in range(7):
        (tmp_path / f"{i}.bin").write_bytes(bytes([i]) * 1000)
    return [str(tmp_path / f"{i}.bin") for i in range(7)]


def test_results_come_in_the_order_of_the_shards(files: list[str]) -> None:
    found = map_shards(digest, files, Machines(workers=3))
    assert found == [str(Path(file).with_suffix(".sha256")) for file in files]
    assert [Path(path).read_text() for path in found] == [
        hashlib.sha256(bytes([i]) * 1000).hexdigest() for i in range(7)
    ]
    assert map_shards(digest, []) == []


def test_a_task_that_fails_twice_is_done_in_the_end(files: list[str]) -> None:
    found = map_shards(digest_after_failures, [(file, 2) for file in files], SOON)
    assert len(found) == 7
    assert {attempts(Path(file)) for file in files} == {3}


def test_a_task_that_fails_three_times_is_an_error_that_says_so(files: list[str]) -> None:
    with pytest.raises(ShardError, match=r"shard 1 of 1 .*0\.bin.* failed 3 times, .* Read-only file system") as caught:
        map_shards(digest_after_failures, [(files[0], 3)], SOON)
    assert "digest_after_failures" in caught.value.details
    assert attempts(Path(files[0])) == 3


def test_large_things_go_through_files(files: list[str]) -> None:
    with pytest.raises(ValueError, match=f"at most {LARGEST:,}: give a task paths"):
        map_shards(digest, [files[0] * 10_000])
    with pytest.raises(ShardError, match=r"failed once, .* returned 1,000,.* write a file and return its path"):
        map_shards(large, files[:1])


def test_progress_counts_and_may_stop(files: list[str]) -> None:
    seen: list[tuple[int, int]] = []
    map_shards(digest, files, Machines(workers=1), lambda done, total: seen.append((done, total)))
    assert seen[-1] == (7, 7)
    assert seen == sorted(seen)

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        map_shards(digest, files, SOON, stop)


def test_without_ray_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ClusterError, match=r"pip install 'treetop-bandits\[ray\]'"):
        map_shards(digest, ["x"], Machines("auto"))


@pytest.mark.parametrize("address", ["head", "ray://head", "ray://:1", "head:99999", "http://x"])
def test_an_address_is_checked(address: str) -> None:
    with pytest.raises(ValueError, match="ray is"):
        Machines(address)


def test_attempts_that_write_at_a_time_leave_one_whole_piece(tmp_path: Path) -> None:
    path, barrier = tmp_path / "piece", threading.Barrier(4)

    def write() -> None:
        def fill(file: object) -> None:
            barrier.wait()
            file.write(b"x" * 100_000)  # type: ignore[attr-defined]

        write_piece(path, fill)

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [file.name for file in tmp_path.iterdir()] == ["piece"]
    assert path.read_bytes() == b"x" * 100_000


def test_a_piece_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    def fail(file: object) -> None:
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        write_piece(tmp_path / "piece", fail)
    assert not list(tmp_path.iterdir())
