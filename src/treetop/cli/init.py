"""`treetop init`: a bandit's folder from labelled data, from the owner's items, from a past log, or from all of them.

Parse, call, print: the folder is what `Bandit.create` makes of the same things.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from treetop.arrays import Matrix, check_int
from treetop.bandit.bandit import Bandit
from treetop.bandit.catalogue import Catalogue
from treetop.bandit.config import Config, FeatureConfig, PolicyConfig, TreeConfig
from treetop.bandit.config_file import CONFIG
from treetop.bandit.creation import check_new, create_folder
from treetop.bandit.vocabulary import part_names
from treetop.cli.items import InitialItems
from treetop.cli.knowledge import first_knowledge
from treetop.cli.options import Json, grouped
from treetop.cli.output import console
from treetop.cli.past import InitialLog
from treetop.cli.progress import steps
from treetop.data.datasets import Dataset, Stream, load, tree_seed


@dataclass(frozen=True)
class InitialPolicy:
    """How the bandit decides and learns; all of it is in config.toml afterwards."""

    k: Annotated[int, typer.Option(help="Arms shown in a decision.")] = 5
    explore: Annotated[
        int | None, typer.Option(help="How many of them are drawn by the strategy; 3, or all but the first if fewer.")
    ] = None
    beam: Annotated[int, typer.Option(help="Nodes that survive on each level of the search.")] = 10
    strategy: Annotated[
        str | None,
        typer.Option(help="budgeted, igw, greedy, boltzmann or epsilon; budgeted, or igw for paper, if none."),
    ] = None
    learner: Annotated[str, typer.Option(help="treetop: shares strength between arms; paper: faithful.")] = "treetop"
    cold: Annotated[bool, typer.Option("--cold", help="Leave the labels out of the learner.")] = False
    first_epoch: Annotated[
        int | None, typer.Option(help="Observed rounds before the first refit; by the learner if none.")
    ] = None
    reward_range: Annotated[
        str | None, typer.Option(help="The lowest and the highest reward, such as 0,250 for revenue; 0,1 if not given.")
    ] = None

    def config(self, tree: TreeConfig, grow_features: int) -> Config:
        """The settings of the folder."""
        usual = Config.of(self.learner)
        explore = usual.policy.explored(self.k) if self.explore is None else self.explore
        low, high = (usual.rewards.low, usual.rewards.high) if self.reward_range is None else _range(self.reward_range)
        return replace(
            usual,
            policy=PolicyConfig(self.k, explore, self.beam, strategy=self.strategy or usual.policy.strategy),
            tree=tree,
            features=FeatureConfig(grow_features=grow_features),
            learner=replace(usual.learner, label_samples=not self.cold),
            refit=usual.refit if self.first_epoch is None else replace(usual.refit, first=self.first_epoch),
            rewards=replace(usual.rewards, low=low, high=high),
        )


@dataclass(frozen=True)
class InitialNames:
    """What the user calls arms and features."""

    arms: Annotated[Path | None, typer.Option(help="A file with the ids of the arms, one a line.")] = None
    features: Annotated[
        Path | None,
        typer.Option(
            help="A file with the names of the features, one a line; or parts of contexts as .json: "
            '{"vector": 64, "device": ["mobile", "desktop"], "age": null}.'
        ),
    ] = None
    grow_features: Annotated[int, typer.Option(help="So many more may join, as requests name them, at refits.")] = 0

    def parts(self) -> list[str] | dict[str, Any] | None:
        """The names of features, or the parts of contexts."""
        if self.features is None:
            return None
        text = self.features.read_text(encoding="utf-8")
        if self.features.suffix != ".json":
            return text.splitlines()
        try:
            found = json.loads(text)
        except ValueError as error:
            raise ValueError(f"{self.features} is not JSON: {error}") from None
        if not isinstance(found, list | dict):
            raise ValueError(f"{self.features} has neither names of features nor parts of contexts")
        return found


@dataclass(frozen=True)
class InitialRows(InitialNames):
    """The rows that tree, routing and first model are made from."""

    init: Annotated[int | None, typer.Option(help="Rows for tree and routing; by the data if none.")] = None
    max_leaf: Annotated[
        int | None,
        typer.Option(help="Arms in a leaf at most; 100 if not given, 10 for labels of fewer than 100,000 arms alone."),
    ] = None
    seed: Annotated[int, typer.Option(help="Seed of the rows chosen and of the tree.")] = 0
    data_dir: Annotated[Path | None, typer.Option(help="Where the files of a set of the paper lie.")] = None


@dataclass(frozen=True)
class Given:
    """What a bandit is created from."""

    catalogue: Catalogue
    features: Any
    tree: TreeConfig
    source: str
    X: Matrix | None = None
    Y: Matrix | None = None
    rows: int = 0


@grouped
def init(
    folder: Annotated[Path, typer.Argument(help="The folder to create.")],
    policy: InitialPolicy,
    rows: InitialRows,
    items: InitialItems,
    past: InitialLog,
    data: Annotated[
        str | None, typer.Argument(help="Labelled data: debian, synthetic:..., or a file or folder as for simulate.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Creates a bandit's folder: settings, catalogue, vocabulary, tree, routing, first model.

    From labelled DATA, from the owner's items, from a past log of them, or from all of it.

    Example: treetop init shop debian
    Example: treetop init shop --items items.csv --id sku --category category --attributes in_stock,price,brand
    Example: treetop init shop --items items.csv --vectors items.npy --log past.csv --columns item=sku,reward=clicked
             --contexts visitors.npy --context-key visitor
    """
    start = time.perf_counter()
    check_new(folder)
    items.check()
    past.check()
    given = _from_items(policy, rows, items, past, as_json) if data is None else _from_data(data, rows, items, as_json)
    config = policy.config(given.tree, rows.grow_features)
    with past.place(folder) as place:
        with steps(as_json) as step:
            create_folder(
                place, given.catalogue, given.X, given.Y, features=given.features, config=config, progress=step
            )
        with Bandit.open(place) as made:
            learned = past.learn(made, as_json)
            model, said = made.snapshot.model, first_knowledge(made, given.catalogue, given.rows, learned)
            facts = {
                "folder": str(folder),
                "arms": model.n_arms,
                "features": model.n_features,
                "nodes": model.tree.n_nodes,
                "model": made.snapshot.name,
                "learner": made.config.learner.name,
                "label_samples": given.rows > 0 and made.config.learner.label_samples,
                "attributes": {name: column.kind for name, column in made.snapshot.attributes.columns.items()},
                "log": None if learned is None else asdict(learned),
                "knows": said,
                "seconds": round(time.perf_counter() - start, 2),
            }
    if as_json:
        print(json.dumps(facts))
        return
    console.print(f"{folder}: {model.tree} from {given.source} in {facts['seconds']} s", highlight=False)
    for line in said:
        console.print(line, highlight=False, markup=False)
    console.print(f"Settings: {folder / CONFIG}. Serve it: treetop serve {folder}", highlight=False)


def _from_items(policy: InitialPolicy, rows: InitialRows, items: InitialItems, past: InitialLog, quiet: bool) -> Given:
    """What the owner's items say, and a log the features that contexts have."""
    given = {"--init": rows.init is not None, "--data-dir": rows.data_dir is not None, "--cold": policy.cold}
    if items.items is None:
        raise ValueError("give labelled DATA such as debian, or --items; treetop init --help has examples")
    if wrong := next((name for name, is_given in given.items() if is_given), None):
        raise ValueError(f"{wrong} says something about labelled DATA, which is not given")
    if rows.arms is not None:
        raise ValueError("--arms names the arms of labelled data; --items has ids of its own (--id)")
    named, catalogue = rows.parts(), items.read(None, quiet)
    assert catalogue is not None
    features, seed = named or past.feature_names(catalogue), check_int("seed", rows.seed, 0, 2**63 - 1)
    return Given(catalogue, features, TreeConfig(rows.max_leaf, seed=seed), str(items.items))


def _from_data(data: str, rows: InitialRows, items: InitialItems, quiet: bool) -> Given:
    """What labelled rows say, and the owner's items of them."""
    dataset = load(data, data_dir=rows.data_dir)
    usually = dataset.sizes(rows.init, 1, rows.max_leaf)[0]
    count = min(usually, dataset.init_rows) if rows.init is None else rows.init
    leaf = dataset.preset.max_leaf if dataset.preset and rows.max_leaf is None else rows.max_leaf
    named = _with_names(dataset, rows)
    catalogue = items.read(named, quiet) or Catalogue.of(named.arm_names)
    stream, tree = Stream.draw(dataset, count, 1, rows.seed), TreeConfig(leaf, seed=tree_seed(rows.seed))
    X, Y = stream.X_init, stream.Y_init
    return Given(catalogue, named.feature_names, tree, f"{count:,} rows", X, Y, count)


def _with_names(dataset: Dataset, names: InitialNames) -> Dataset:
    """The dataset with the names that the files have, where files are given."""
    features = names.parts()
    if isinstance(features, dict):
        features = list(part_names(features))
    arms = names.arms.read_text(encoding="utf-8").splitlines() if names.arms else None
    given = {"arm_names": arms, "feature_names": features}
    lines: dict[str, Any] = {key: tuple(found) for key, found in given.items() if found is not None}
    return replace(dataset, **lines)


def _range(text: str) -> tuple[float, float]:
    """LOW,HIGH as two numbers.

    >>> _range("-5,40")
    (-5.0, 40.0)
    """
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"--reward-range is {text!r}; it must be two numbers, such as 0,250") from None
    return low, high
