"""`treetop evaluate` as it is typed: a table for people, JSON for machines, a picture, errors in one line."""

import json
import os
import re
import shutil
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.commands import call, shell
from helpers.problems import topics
from helpers.running import settings, small_bandit

from treetop import Bandit, PolicyConfig
from treetop.bandit.config import SegmentConfig
from treetop.bandit.policy_search import PolicySearch
from treetop.bandit.sealing import seal_folder

X, Y = topics(n=900)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> str:
    """300 visits, a refit, 300 more."""
    policy = PolicyConfig(k=2, explore=2, beam=4, strategy="epsilon", parameters={"epsilon": 0.5})
    path = small_bandit(tmp_path_factory.mktemp("typed") / "shop", X, Y, config=settings(policy=policy))
    truth = Y.toarray()
    with Bandit.open(path) as bandit:
        for i in range(600):
            row = 300 + i
            served = bandit.decide(X[row], f"visit-{i}")
            bandit.reward(f"visit-{i}", {arm: float(truth[row, int(str(arm)[1:])]) for arm in served.arms})
            if i == 299:
                bandit.refit()
    return str(path)


def test_a_table_with_verdicts(shop: str) -> None:
    words = ("--policy", "strategy=greedy", "--policy", "beam=30", "--policy", "model=000001")
    text = " ".join(call("evaluate", shop, *words).output.split())
    for part in ("600 visits brought", "strategy=greedy", "beam=30", "verdict", "which assumes", "300 visits left out"):
        assert part in text


def test_segments_and_a_log_give_the_numbers_of_the_folder(shop: str, tmp_path: Path) -> None:
    words = ("--policy", "strategy=greedy", "--policy", "model=000001", "--json")
    expected = json.loads(call("evaluate", shop, *words).output)
    copy = shutil.copytree(shop, tmp_path / "shop")
    with Bandit.open(copy) as bandit:
        at_once = SegmentConfig(wait_seconds=0, rounds=250)
        seal_folder(bandit.folder, bandit.log, at_once, bandit.snapshot.model.tree, rest=True)
    moved = str(shutil.copytree(copy / "segments", tmp_path / "segments"))
    for source in (
        (str(copy), "--segments", moved),
        (str(copy / "segments"),),
        (str(copy / "log.sqlite"),),
        (shop, "--log", str(Path(shop) / "log.sqlite")),
    ):
        assert json.loads(call("evaluate", *source, *words).output) == expected, source
    refused = shell("evaluate", moved, *words)
    assert refused.returncode == 2
    assert "lies in no bandit's folder: name that folder, too" in refused.stderr
    assert "--search and --experiment need the log" in shell("evaluate", shop, "--segments", moved, "--search").stderr


def test_long_verdicts_stand_below_the_table_of_80_columns(shop: str) -> None:
    text = call("evaluate", shop, "--policy", "strategy=boltzmann,beta=0.5", "--policy", "beam=30").output
    table = [line for line in text.splitlines() if "│" in line]
    assert max(map(len, table)) <= 80
    words = " ".join(line.split("│")[-1].strip() for line in table).split()
    assert {*words} <= {"better", "worse", "the", "same", "cannot", "tell", "yet"}
    assert re.search(r"^beam=30: cannot tell yet: (about|more than) [0-9,]+ more visits$", text, re.MULTILINE)


def test_a_number_that_leaves_much_out_is_not_printed(shop: str) -> None:
    words = ("--policy", "strategy=greedy", "--policy", "beam=1")
    greedy, narrow = json.loads(call("evaluate", shop, *words, "--json").output)["candidates"]
    assert greedy["missing"] < 0.1 < narrow["missing"]
    lines = call("evaluate", shop, *words).output.splitlines()
    (first,) = (line for line in lines if line.startswith("beam=1 "))
    assert first.count("not known") == 2
    assert not any(f"{narrow['per_visit']['value']:.3f}" in line for line in lines if "│" in line)
    (note,) = (line for line in lines if "may bring anything" in line)
    assert f"if it earned like the rest: {narrow['per_visit']['value']:.3f} a visit" in note
    assert f"{greedy['per_visit']['value']:.3f}" in next(line for line in lines if line.startswith("strategy=greedy "))


def test_an_estimator_and_support(shop: str) -> None:
    words = ("--policy", "strategy=greedy", "--estimator", "offcem-0")
    text = " ".join(call("evaluate", shop, *words).output.split())
    for part in (
        "biased where it does not hold",
        "weights up to",
        "the log can show all its decisions",
        "weighed by nodes-0",
    ):
        assert part in text
    done = shell("evaluate", shop, "--search", "--estimator", "offcem-0")
    assert done.returncode == 2
    assert "--estimator is for --policy" in done.stderr
    for position, says in (
        ("any", "only one can choose"),
        ("best", "--position-model is 'best'; it must be one of any"),
    ):
        done = shell("evaluate", shop, *words, "--position-model", position)
        assert done.returncode == 2
        assert says in done.stderr
    chosen = json.loads(call("evaluate", shop, *words[:2], "--position-model", "cascade", "--json").output)
    assert chosen["candidates"][0]["estimator"] == "snips-slots"
    found = json.loads(call("evaluate", shop, *words, "--json").output)["candidates"][0]
    assert found["estimator"] == "offcem-0"
    assert found["largest_weight"] > 1
    assert 0 <= found["unsupported"] < 1e-9


def test_json_and_a_picture(shop: str, tmp_path: Path) -> None:
    picture = tmp_path / "results.png"
    words = ("--policy", "strategy=greedy", "--policy", "model=000001", "--picture", str(picture), "--json")
    found = json.loads(call("evaluate", shop, *words).output)
    assert found["rounds"] == 600
    assert found["differing"] == 0
    assert found["picture"] == str(picture)
    assert picture.read_bytes().startswith(b"\x89PNG")
    greedy, model = found["candidates"]
    assert greedy["name"] == "strategy=greedy"
    assert greedy["per_visit"]["low"] <= greedy["per_visit"]["value"] <= greedy["per_visit"]["high"]
    assert np.isclose(greedy["per_slot"]["value"], greedy["per_visit"]["value"] / 2)
    assert 0 < greedy["share"] <= 1
    assert greedy["verdict"] == "better" or greedy["verdict"].startswith("cannot tell yet")
    assert {"ips-slate", "ips-slots", "snips-slots", "dr-slots", "dr-slate", "offcem-0"} <= greedy["others"].keys()
    assert model["left_out"] == {"taught the model": 300}


def test_since(shop: str) -> None:
    """What has no visits ends alike in all forms."""
    for what in (("--policy", "beam=30"), ("--search",), ("--experiment", "beams")):
        for more in ((), ("--json",)):
            done = shell("evaluate", shop, *what, "--since", "2999-01-01", *more)
            assert (done.returncode, done.stdout) == (2, "")
            assert "--since is '2999-01-01', which is in the future: there are no visits" in done.stderr
    with Bandit.open(shop) as bandit:
        last = bandit.event("visit-599").event.time
    late = datetime.fromtimestamp(last + 1e-3, timezone.utc).isoformat()
    for what in (("--policy", "beam=30"), ("--search",)):
        done = shell("evaluate", shop, *what, "--since", late)
        assert (done.returncode, done.stdout) == (2, "")
        assert "error: there are no visits with rewards to judge by" in done.stderr


def test_a_picture_that_cannot_be_drawn_is_said_before_anything_is_read(
    shop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unasked(*_: Any, **__: Any) -> None:
        raise AssertionError("it was evaluated")

    for name in ("evaluate", "search_policies"):
        monkeypatch.setattr(f"treetop.cli.evaluate.{name}", unasked)
    (tmp_path / "folder.png").mkdir()
    cases = {
        tmp_path / "results.gif": "its name must end with one of .png, .svg",
        tmp_path / "results": "its name must end with one of .png, .svg",
        tmp_path / "away" / "results.png": "there is no folder",
        tmp_path / "folder.png": "which is a folder",
    }

    def said(path: Path, words: str) -> None:
        for what in (("--policy", "beam=30"), ("--search",)):
            done = shell("evaluate", shop, *what, "--picture", str(path))
            assert done.returncode == 2
            assert words in done.stderr

    for path, words in cases.items():
        said(path, words)
    with monkeypatch.context() as patch:
        patch.setattr("os.access", lambda _, mode, **__: mode != os.W_OK)  # whoever runs the tests may write everywhere
        said(tmp_path / "results.png", "which cannot be written")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    said(tmp_path / "results.png", "--picture needs matplotlib")


def test_notes_are_printed_once(shop: str) -> None:
    words = ("--policy", "beam=30", "--policy", "beam=40", "--policy", "model=000001")
    text = call("evaluate", shop, *words).output
    assert text.count("weighed by") == len({line.partition(": ")[2] for line in text.splitlines() if "weighed" in line})
    assert "beam=30; beam=40: weighed by" in text or "all: weighed by" in text
    assert "model=000001: 300 visits left out: taught the model" in text


def test_a_search_without_a_gain_names_no_best(shop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for gain, words in (
        (0.0, "None of them gains; the surest not to lose is {}, with +0.000 a visit"),
        (0.0004, "None of them gains; the surest not to lose is {}, with +0.000 a visit"),
        (-0.2, "None of them gains; the surest not to lose is {}, with -0.200 a visit"),
        (0.2, "Best of them: {}."),
    ):
        monkeypatch.setattr(PolicySearch, "gain", gain)
        text = call("evaluate", shop, "--search").output
        assert words.format("strategy=greedy") in text
        assert ("Best" in text) == (gain > 0.1)


def test_search(shop: str) -> None:
    text = " ".join(call("evaluate", shop, "--search").output.split())
    assert "Best of them:" in text
    assert "newer visits, which did not choose it" in text
    found = json.loads(call("evaluate", shop, "--search", "--json").output)
    assert found["chosen"] in [candidate["name"] for candidate in found["searched"]["candidates"]]
    assert found["held_out"]["rounds"] == 180


def test_search_with_a_bound(shop: str) -> None:
    plain, bounded = (
        json.loads(call("evaluate", shop, "--search", "--json", *more).output)
        for more in ((), ("--weight-bound", "1e6"))
    )
    assert plain["searched"]["served"] == bounded["searched"]["served"]
    assert plain["searched"] == bounded["searched"], "where the served policy is known, so are its largest weights"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "give --policy, once or more, or --search"),
        (("--policy", "beam=3", "--search"), "--policy and --search do not go together: --search makes its own"),
        (("--experiment", "beams", "--search"), "--search and --experiment do not go together"),
        (("--experiment", "beams", "--since", "2020-01-01"), "--since is for --policy and --search"),
        (("--policy", ""), "policy is ''; name=value is needed, such as beam=30"),
        (("--policy", "explore=5"), "policy 'explore=5': explore is 5; it must lie in [0, 2]"),
        (("--policy", "beam=0"), "beam is 0; it must lie in [1, 2147483647]"),
        (("--policy", "model=000099"), "there is no model '000099'; kept are 000000, 000001"),
        (("--policy", "beam=30", "--since", "soon"), "--since is 'soon'; a date such as 2025-01-31"),
        (("--policy", "beam=30", "--confidence", "2"), "confidence is 2"),
        (("--policy", "beam=30", "--weight-bound", "1.01"), "weight_bound is 1.01; beam=30 has a weight of"),
        (("--search", "--weight-bound", "1.01"), "weight_bound is 1.01; strategy=greedy has a weight of"),
    ],
)
def test_mistakes_are_one_line(shop: str, words: tuple[str, ...], says: str) -> None:
    done = shell("evaluate", shop, *words)
    assert done.returncode == 2
    assert says in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
