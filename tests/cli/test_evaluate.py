"""`treetop evaluate` as it is typed: a table for people, JSON for machines, a picture, errors in one line."""

import json
from pathlib import Path

import numpy as np
import pytest
from helpers.commands import call, shell
from helpers.problems import topics
from helpers.running import settings, small_bandit

from treetop import Bandit, PolicyConfig

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
    words = ("--policy", "beam=30", "--since", "2999-01-01", "--json")
    found = json.loads(call("evaluate", shop, *words).output)
    assert found["rounds"] == 0
    assert found["candidates"][0]["verdict"] == "cannot tell: there are no rounds to judge it by"
    assert "no visits with rewards to judge by" in call("evaluate", shop, *words[:4]).output


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
        (("--policy", "beam=3", "--search"), "give --policy, once or more, or --search"),
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
