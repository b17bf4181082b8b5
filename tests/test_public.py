"""The front of the package: which names are public, and that each has an example."""

import doctest
import importlib
import inspect
import pkgutil
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import treetop

ROOT = Path(__file__).parents[1]
PUBLIC = [
    "ArmIndex",
    "ArmNotShown",
    "AsyncClient",
    "Bandit",
    "begin",
    "Boltzmann",
    "Budgeted",
    "CandidatePolicy",
    "CandidateResult",
    "Candidates",
    "CandidateStrategy",
    "CapConfig",
    "Catalogue",
    "Client",
    "Config",
    "Coverage",
    "Dataset",
    "Decision",
    "Decisions",
    "Effort",
    "Eligible",
    "Environment",
    "Epochs",
    "EpsilonGreedy",
    "Estimate",
    "evaluate",
    "Evaluation",
    "Event",
    "EventConflict",
    "Experiment",
    "ExperimentConfig",
    "Explanation",
    "FeatureConfig",
    "FeatureOutlier",
    "Feedback",
    "Fitted",
    "FlatModel",
    "FlatPolicy",
    "FolderInUse",
    "ForeignLog",
    "Greedy",
    "History",
    "IGW",
    "InvalidModel",
    "LabelSamples",
    "LearnedRouting",
    "Learner",
    "LearnerConfig",
    "Learning",
    "LimitConfig",
    "Linear",
    "load",
    "LogError",
    "Measure",
    "Mechanisms",
    "Model",
    "ModelFileError",
    "ModelPinned",
    "ModelSuperseded",
    "NoEligibleArm",
    "NothingToLearn",
    "Observer",
    "PersonalizerConfig",
    "Policy",
    "PolicyConfig",
    "PolicySearch",
    "Pooled",
    "PooledState",
    "Prior",
    "Preset",
    "refit",
    "RefitConfig",
    "ReplicaConfig",
    "RefitResult",
    "Reward",
    "RewardConfig",
    "RewardConflict",
    "RouteCache",
    "Rows",
    "Run",
    "run",
    "Scenario",
    "ScoresAllArms",
    "search_policies",
    "SegmentConfig",
    "SegmentError",
    "ServedDecision",
    "ServedSlot",
    "ServiceError",
    "ServiceUnreachable",
    "SlateProbabilities",
    "SlateProbability",
    "StoredEvent",
    "Strategy",
    "Stream",
    "Tracking",
    "Tree",
    "TreeConfig",
    "TreeBuilding",
    "TreetopError",
    "UnknownArm",
    "UnknownEvent",
    "UnknownFeature",
    "World",
]
# Named so that a signature can be written down; one gets them from others, or raises and catches them.
RECEIVED = {
    "ArmIndex",
    "CandidateResult",
    "Candidates",
    "Event",
    "Experiment",
    "Fitted",
    "History",
    "LearnedRouting",
    "Learner",
    "Observer",
    "PooledState",
    "Prior",
    "Preset",
    "Reward",
    "RouteCache",
    "Rows",
    "ScoresAllArms",
    "StoredEvent",
    "World",
    *(
        name
        for name in PUBLIC
        if inspect.isclass(getattr(treetop, name)) and issubclass(getattr(treetop, name), Exception)
    ),
}


def test_the_list_of_public_names() -> None:
    assert sorted(treetop.__all__, key=str.lower) == sorted(PUBLIC, key=str.lower)
    assert all(getattr(treetop, name).__doc__ for name in PUBLIC)


def named(hint: Any) -> Iterator[type]:
    """The classes of treetop that a type hint names."""
    if inspect.isclass(hint) and hint.__module__.startswith("treetop.") and hint.__module__ != "treetop._core":
        yield hint
    for part in typing.get_args(hint):
        for inner in part if isinstance(part, list) else [part]:
            yield from named(inner)


def public_parts(public: Any) -> Iterator[Any]:
    """A function; or the fields, methods and properties of a class that its users see."""
    yield public
    if not inspect.isclass(public):
        return
    for name, member in vars(public).items():
        made = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        if inspect.isfunction(made) and not name.startswith("_"):
            yield made


@pytest.mark.parametrize("name", sorted(set(PUBLIC) - RECEIVED))
def test_whatever_a_public_function_takes_or_returns_can_be_named(name: str) -> None:
    for part in public_parts(getattr(treetop, name)):
        for what, hint in typing.get_type_hints(part).items():
            unnamed = [kind.__name__ for kind in named(hint) if kind.__name__ not in PUBLIC]
            assert what.startswith("_") or not unnamed, f"{name}: {part.__name__} has {unnamed} in {what}"


@pytest.mark.parametrize("name", sorted(set(PUBLIC) - RECEIVED))
def test_public_functions_have_at_most_eight_parameters(name: str) -> None:
    """Records are made by field names; everything that one calls with arguments has few."""
    for part in public_parts(getattr(treetop, name)):
        if inspect.isfunction(part):
            count = len([p for p in inspect.signature(part).parameters if p not in ("self", "cls")])
            assert count <= 8, f"{name}: {part.__name__} has {count} parameters"


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


@pytest.mark.parametrize("name", sorted(set(PUBLIC) - RECEIVED))
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


def test_the_readmes_commands_exist() -> None:
    text = (ROOT / "README.md").read_text()
    makefile = (ROOT / "Makefile").read_text()
    for target in ("demo", "test"):
        assert f"make {target}" in text
        assert f"\n{target}:" in makefile
