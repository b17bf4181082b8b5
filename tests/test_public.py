"""The front of the package: which names are public, and that the README's session runs as printed."""

import doctest
import importlib
import inspect
import pkgutil
from pathlib import Path
from typing import Any

import pytest

import treetop

ROOT = Path(__file__).parents[1]
PUBLIC = [
    "Catalogue", "Config", "FeatureConfig", "LearnerConfig", "LimitConfig", "PolicyConfig", "RefitConfig",
    "RefitResult", "RewardConfig", "ServedDecision", "ServedSlot", "TreeConfig",
    "Bandit", "Boltzmann", "Client", "Dataset", "Decision", "Decisions", "Eligible", "EpsilonGreedy", "Epochs",
    "Explanation", "Feedback", "FlatModel", "FlatPolicy", "Greedy", "IGW", "Linear", "Model", "ModelFileError",
    "Policy", "Run", "ServiceError", "Strategy", "Stream", "Tree", "load", "refit", "run", "Labelled", "Pooled",
    "CostAware", "Environment", "Learning", "Tracking",
]  # fmt: skip


def test_the_list_of_public_names() -> None:
    assert sorted(treetop.__all__, key=str.lower) == sorted(PUBLIC, key=str.lower)
    assert all(getattr(treetop, name).__doc__ for name in PUBLIC)


# Examples of commands are in --help, which the tests of the command line ask for; service and benches have none.
WITHOUT = ("treetop.cli.", "treetop.service.", "treetop.bench.", "treetop.log.")
MODULES = [
    info.name
    for info in pkgutil.walk_packages(treetop.__path__, "treetop.")
    if not info.ispkg and not info.name.startswith("treetop._") and not info.name.startswith(WITHOUT)
] + ["treetop.log.open", "treetop.log.records"]


def examples(thing: Any) -> list[str]:
    """The lines of code that a docstring shows, which pytest runs (--doctest-modules)."""
    return [example.source for example in doctest.DocTestParser().get_examples(thing.__doc__ or "")]


def calls(name: str, lines: list[str]) -> bool:
    return any(f"{name}(" in line for line in lines)


def methods(kind: type) -> dict[str, Any]:
    found = {name: getattr(made, "__func__", made) for name, made in vars(kind).items() if not name.startswith("_")}
    return {name: made for name, made in found.items() if inspect.isfunction(made)}


@pytest.mark.parametrize("name", MODULES)
def test_every_public_function_has_an_example_that_calls_it(name: str) -> None:
    module = importlib.import_module(name)
    mine = {
        what: made
        for what, made in vars(module).items()
        if inspect.isfunction(made) and made.__module__ == module.__name__ and not what.startswith("_")
    }
    assert [what for what, made in mine.items() if not calls(what, examples(made))] == []


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_and_its_methods_have_an_example(name: str) -> None:
    """A method may be called in the example of its class or of another method; its own docstring says what it does."""
    public = getattr(treetop, name)
    if not inspect.isclass(public):
        assert calls(name, examples(public))
        return
    mine = methods(public)
    assert [what for what, made in mine.items() if not made.__doc__] == []
    every = [line for made in (public, *mine.values()) for line in examples(made)]
    assert [what for what in mine if not calls(what, every)] == []
    assert examples(public) or any(map(examples, mine.values())), "neither the class nor a method has an example"


@pytest.mark.parametrize("page", ["README.md", "docs/experiments.md"])
def test_the_sessions_of_the_pages_run(page: str) -> None:
    result = doctest.testfile(str(ROOT / page), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert result.attempted >= 8
    assert result.failed == 0


def test_the_readmes_commands_exist() -> None:
    text = (ROOT / "README.md").read_text()
    makefile = (ROOT / "Makefile").read_text()
    for target in ("demo", "test"):
        assert f"make {target}" in text
        assert f"\n{target}:" in makefile
