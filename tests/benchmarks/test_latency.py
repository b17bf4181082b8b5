"""What `latency_profile` makes of system calls and spans, and which turns `latency` judges."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers.scripts import script

latency = script("latency")
profile = script("latency_profile")

CALLS = """\
7 100.000000 fdatasync(5</x/log.sqlite-wal>) = 0 <0.002000>
7 100.010000 fdatasync(6</x/log.sqlite>) = 0 <0.004000>
8 100.020000 fdatasync(5</x/log.sqlite-wal> <unfinished ...>
7 100.021000 fsync(9</x/current>) = 0 <0.000500>
8 100.025000 <... fdatasync resumed>) = 0 <0.005000>
8 100.030000 +++ exited with 0 +++
"""


def test_system_calls_by_file(tmp_path: Path) -> None:
    (tmp_path / "calls").write_text(CALLS)
    wal, file, state, later = profile.system_calls(tmp_path / "calls")
    assert wal == ("fdatasync of the write-ahead log", 100.0, pytest.approx(100.002))
    assert file == ("fdatasync of the log's file", 100.01, pytest.approx(100.014))
    assert state[0] == "fsync of current"
    assert later == ("fdatasync of the write-ahead log", pytest.approx(100.020), 100.025)
    commits = [("commit", 99.9995, 100.003), ("commit", 100.009, 100.015), ("insert", 100.009, 100.015)]
    named = [kind for kind, _, _ in profile.with_checkpoints(commits, [wal, file, state, later])]
    assert named == ["commit", "commit with checkpoint", "insert"]


def test_work_within_requests_is_measured() -> None:
    spans = [("sync", 1.0, 2.0), ("sync", 3.0, 3.5), ("garbage", 10.0, 11.0)]
    requests = np.array([[0.0, 1.5], [1.5, 3.25], [4.0, 5.0], [0.0, 20.0]])
    found = profile.overlaps(spans, requests)
    assert found["sync"] == pytest.approx([0.5, 0.75, 0.0, 1.5])
    assert found["garbage"] == pytest.approx([0.0, 0.0, 0.0, 1.0])


def test_what_slow_requests_have_more_of_explains_them() -> None:
    usual = [(float(t), t + 0.002) for t in range(990)]
    slow = [(2000.0 + t, 2000.02 + t) for t in range(10)]
    spans = [("sync", t, t + 0.001) for t, _ in usual] + [("checkpoint", t, t + 0.018) for t, _ in slow]
    found = profile.summary(np.array(usual + slow), spans)
    assert (found["p50_ms"], found["requests"]) == (pytest.approx(2.0, rel=1e-3), 1000)
    best = found["kinds"][0]
    assert (best["kind"], best["count"], best["explains"]) == ("checkpoint", 10, pytest.approx(1.0, rel=1e-3))


def test_busy_turns_are_left_out() -> None:
    turns = [{"p50": 2.0, "p99": 6.0, "others": 0.05}, {"p50": 9.0, "p99": 90.0, "others": 0.6}]
    both = latency.Contestant("base", 0, 0, turns)
    assert (both.quiet(0.1).median("p50"), both.quiet(0.1).tail) == (2.0, 3.0)
    assert both.quiet(1.0).median("p50") == 5.5
    assert both.quiet(0.0).median("p50") == 2.0  # the quietest one there is


def test_a_family_is_a_process_and_all_below_it() -> None:
    words = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"
    with subprocess.Popen([sys.executable, "-c", words], stdin=subprocess.PIPE) as child:
        while len(found := latency.family(child.pid)) < 2:
            assert child.poll() is None
        assert child.pid in found
        assert os.getpid() not in found
        assert found.keys() < latency.family(os.getpid()).keys()
