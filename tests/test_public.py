"""The front of the package: which names are public, and that the README's session runs as printed."""

import doctest
from pathlib import Path

import treetop

ROOT = Path(__file__).parents[1]
PUBLIC = [
    "Bandit", "Boltzmann", "Client", "Dataset", "Decision", "Decisions", "Eligible", "EpsilonGreedy", "Epochs",
    "Explanation", "Feedback", "FlatModel", "FlatPolicy", "Greedy", "IGW", "Linear", "Model", "ModelFileError",
    "Policy", "Run", "ServiceError", "Strategy", "Stream", "Tree", "load", "refit", "run",
]  # fmt: skip


def test_the_list_of_public_names() -> None:
    assert sorted(treetop.__all__, key=str.lower) == sorted(PUBLIC, key=str.lower)
    assert all(getattr(treetop, name).__doc__ for name in PUBLIC)


def test_the_readmes_session_runs() -> None:
    result = doctest.testfile(str(ROOT / "README.md"), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert result.attempted >= 8
    assert result.failed == 0


def test_the_readmes_commands_exist() -> None:
    text = (ROOT / "README.md").read_text()
    makefile = (ROOT / "Makefile").read_text()
    for target in ("demo", "test"):
        assert f"make {target}" in text
        assert f"\n{target}:" in makefile
