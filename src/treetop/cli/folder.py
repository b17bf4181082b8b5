"""The commands of a bandit's folder: init, serve, replay. Parse, call, print."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from treetop.bandit.bandit import Bandit
from treetop.bandit.catalogue import Catalogue
from treetop.bandit.config import Config, FeatureConfig, PolicyConfig, TreeConfig
from treetop.bandit.config_file import CONFIG
from treetop.bandit.creation import check_new
from treetop.bandit.results import same_decision
from treetop.bandit.vocabulary import part_names
from treetop.cli.items import InitialItems, first_knowledge
from treetop.cli.options import Json, grouped
from treetop.cli.output import console
from treetop.cli.past import InitialLog
from treetop.data.datasets import Dataset, Stream, load, tree_seed

Folder = Annotated[Path, typer.Argument(help="The bandit's folder.")]
LogAt = Annotated[
    str | None,
    typer.Option("--log", envvar="TREETOP_LOG", help="postgresql://... or a path; the folder's own if not given."),
]


@dataclass(frozen=True)
class InitialPolicy:
    """How the bandit decides and learns; all of it is in config.toml afterwards."""

    k: Annotated[int, typer.Option(help="Arms shown in a decision.")] = 5
    explore: Annotated[int, typer.Option(help="How many of them are drawn by the strategy.")] = 3
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
    max_leaf: Annotated[int | None, typer.Option(help="Arms in a leaf at most; by the data if not given.")] = None
    seed: Annotated[int, typer.Option(help="Seed of the rows chosen and of the tree.")] = 0
    data_dir: Annotated[Path | None, typer.Option(help="Where the files of a set of the paper lie.")] = None


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

    From labelled DATA, from the owner's items, or from both.

    Example: treetop init shop debian
    Example: treetop init shop --items items.csv --id sku --category category --attributes in_stock,price,brand
    Example: treetop init shop --items items.csv --vectors items.npy --log past.csv --columns item=sku,reward=clicked
             --contexts visitors.npy --context-key visitor
    """
    start = time.perf_counter()
    check_new(folder)
    items.check()
    past.check()
    if data is None:
        if items.items is None:
            raise ValueError("give labelled DATA such as debian, or --items; treetop init --help has examples")
        _check_no_labels(policy, rows)
        _init_items(folder, items, past, _config_of(policy, rows), rows, as_json)
        return
    if past.log is not None:
        raise ValueError("--log goes with --items alone; a bandit from labelled DATA learns it by treetop import")
    dataset = load(data, data_dir=rows.data_dir)
    usually, _, leaf = dataset.sizes(rows.init, 1, rows.max_leaf)
    count = min(usually, dataset.init_rows) if rows.init is None else rows.init
    config = _config(policy, leaf, rows.seed, rows.grow_features)
    named = _with_names(dataset, rows)
    catalogue = items.read(named, as_json) or Catalogue.of(named.arm_names)
    stream = Stream.draw(dataset, count, 1, rows.seed)
    with Bandit.create(
        folder, catalogue, stream.X_init, stream.Y_init, features=named.feature_names, config=config
    ) as made:
        model = made.snapshot.model
        facts = {
            "folder": str(folder),
            "arms": model.n_arms,
            "features": model.n_features,
            "nodes": model.tree.n_nodes,
            "model": made.snapshot.name,
            "learner": policy.learner,
            "label_samples": made.config.learner.label_samples,
            "seconds": round(time.perf_counter() - start, 2),
        }
    if as_json:
        print(json.dumps(facts))
        return
    console.print(f"{folder}: {model.tree} from {count:,} rows in {facts['seconds']} s", highlight=False)
    console.print(f"Settings: {folder / CONFIG}. Serve it: treetop serve {folder}", highlight=False)


def _check_no_labels(policy: InitialPolicy, rows: InitialRows) -> None:
    """Raises ValueError for an option that says something about labelled data, which is not given."""
    given = {"--init": rows.init is not None, "--data-dir": rows.data_dir is not None, "--cold": policy.cold}
    if wrong := next((name for name, is_given in given.items() if is_given), None):
        raise ValueError(f"{wrong} says something about labelled DATA, which is not given")


def _init_items(
    folder: Path,
    items: InitialItems,
    past: InitialLog,
    config: Callable[[int], Config],
    names: InitialNames,
    quiet: bool,
) -> None:
    """`init` from the owner's items, and from what another system has shown of them."""
    start = time.perf_counter()
    if names.arms is not None:
        raise ValueError("--arms names the arms of labelled data; --items has ids of its own (--id)")
    named = names.parts()
    catalogue = items.read(None, quiet)
    assert catalogue is not None
    features = named or past.feature_names(catalogue)
    with (
        past.place(folder) as place,
        Bandit.create(place, catalogue, features=features, config=config(catalogue.n_arms or 0)) as made,
    ):
        learned = past.learn(made, quiet)
        model, said = made.snapshot.model, first_knowledge(made, catalogue, learned)
        facts = {
            "folder": str(folder),
            "arms": model.n_arms,
            "features": model.n_features,
            "nodes": model.tree.n_nodes,
            "model": made.snapshot.name,
            "learner": made.config.learner.name,
            "attributes": {name: column.kind for name, column in made.snapshot.attributes.columns.items()},
            "log": None if learned is None else asdict(learned),
            "knows": said,
            "seconds": round(time.perf_counter() - start, 2),
        }
    if quiet:
        print(json.dumps(facts))
        return
    console.print(f"{folder}: {model.tree} from {items.items} in {facts['seconds']} s", highlight=False)
    for line in said:
        console.print(line, highlight=False, markup=False)
    console.print(f"Settings: {folder / CONFIG}. Serve it: treetop serve {folder}", highlight=False)


def _config_of(policy: InitialPolicy, rows: InitialRows) -> Callable[[int], Config]:
    """The settings of a bandit from items, by how many these are."""

    def config(n_arms: int) -> Config:
        usual = 10 if n_arms < 100_000 else 100
        leaf = usual if rows.max_leaf is None else rows.max_leaf
        return _config(policy, leaf, rows.seed, rows.grow_features)

    return config


def _config(policy: InitialPolicy, max_leaf: int, seed: int, grow_features: int) -> Config:
    usual = Config.of(policy.learner)
    first = policy.first_epoch
    return replace(
        usual,
        policy=PolicyConfig(policy.k, policy.explore, policy.beam, strategy=policy.strategy or usual.policy.strategy),
        tree=TreeConfig(max_leaf, seed=tree_seed(seed)),
        features=FeatureConfig(grow_features=grow_features),
        learner=replace(usual.learner, label_samples=not policy.cold),
        refit=usual.refit if first is None else replace(usual.refit, first=first),
    )


def _with_names(dataset: Dataset, names: InitialNames) -> Dataset:
    """The dataset with the names that the files have, where files are given."""
    features = names.parts()
    if isinstance(features, dict):
        features = list(part_names(features))
    arms = names.arms.read_text(encoding="utf-8").splitlines() if names.arms else None
    given = {"arm_names": arms, "feature_names": features}
    lines: dict[str, Any] = {key: tuple(found) for key, found in given.items() if found is not None}
    return replace(dataset, **lines)


@dataclass(frozen=True)
class Listening:
    """Where the service listens, and how many processes answer."""

    host: Annotated[
        str, typer.Option(envvar="TREETOP_HOST", help="Address to listen on; any but this machine's own needs a token.")
    ] = "127.0.0.1"
    port: Annotated[int, typer.Option(envvar="TREETOP_PORT", help="Port to listen on; 0 takes a free one.")] = 8700
    workers: Annotated[int, typer.Option(envvar="TREETOP_WORKERS", help="Processes that answer.")] = 1


@dataclass(frozen=True)
class Secrets:
    """What others must not read. Files with secrets may be readable for their owner only."""

    log: LogAt = None
    log_file: Annotated[
        Path | None,
        typer.Option(envvar="TREETOP_LOG_FILE", help="A file with the address for --log, password included."),
    ] = None
    tokens: Annotated[
        Path | None,
        typer.Option(
            envvar="TREETOP_TOKENS_FILE",
            help="A file of tokens, a line each: 'read,write TOKEN'. Or set TREETOP_TOKEN, one for everything.",
        ),
    ] = None


@grouped
def serve(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(envvar="TREETOP_FOLDER", help="The bandit's folder.")],
    listening: Listening,
    secrets: Secrets,
    as_json: Json = False,
) -> None:
    """Serves decisions, rewards, refits and the dashboard over HTTP until SIGTERM or Ctrl-C.

    The service's log is JSON lines on stderr, with or without --json.

    Example: treetop serve shop --port 8700
    """
    _check_extra()
    from treetop.service import serve as serving

    typed = {name for name in ("log", "log_file") if _is_typed(context, name)}
    log = _log_address(secrets, typed)
    serving.become_service(folder, listening.host, listening.port, listening.workers, log, secrets.tokens)


def _is_typed(context: typer.Context, name: str) -> bool:
    """Whether an option comes from the command line, not from the environment."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _log_address(given: Secrets, typed: set[str]) -> str | None:
    """The log's address, from an option, the environment or a file; `typed` options come before the environment."""
    from treetop.service import logs
    from treetop.service.secret_files import password_of, read_address

    if given.log and given.log_file and len(typed) != 1:
        raise ValueError("give the log's address or a file with it, not both (--log, --log-file)")
    if given.log_file is not None and typed != {"log"}:
        return read_address(given.log_file)
    if given.log and "log" in typed and password_of(given.log) is not None:
        logs.set_up()
        why = "everyone on this machine can read them: use TREETOP_LOG, --log-file or PGPASSFILE"
        logs.log_event("a password in the arguments", logging.WARNING, why=why)
    return given.log


def _check_extra() -> None:
    """Refuses to serve without what the extra `serve` installs, before any port is open."""
    for name in ("uvicorn", "starlette", "httptools", "prometheus_client"):
        if find_spec(name) is None:
            raise ValueError(f"serving needs {name}: pip install 'treetop-bandits[serve]'")


def serve_demo(folder: Path, rounds: int, seed: int, port: int, rate: float, as_json: bool) -> None:
    """`treetop demo --serve`: prints the address of the dashboard, as JSON or as text, and serves."""
    _check_extra()
    from treetop.service import demo_traffic

    def announce(url: str) -> None:
        if as_json:
            print(json.dumps({"url": url, "folder": str(folder)}), flush=True)
        else:
            console.print(f"Dashboard: [bold]{url}[/]   folder: {folder}   Ctrl-C ends it.", highlight=False)

    demo_traffic.serve_demo(folder, rounds, seed, port, rate, announce)


def replay(
    folder: Folder,
    event: Annotated[str, typer.Argument(help="The id of a logged decision.")],
    log: LogAt = None,
    as_json: Json = False,
) -> None:
    """Computes a logged decision again from its model and compares the two. Exit code 1 if they differ.

    Example: treetop replay shop visit-1
    """
    with Bandit.open(folder, log) as bandit:
        logged, again = bandit.replay(event)
        agrees, served = same_decision(logged, again), bandit.served(logged)
        facts = {"event_id": event, "model": logged.model, "epoch": served.epoch, "same": agrees}
    if as_json:
        print(json.dumps({**facts, "slots": [asdict(slot) for slot in served.slots]}))
    else:
        console.print(f"{event}: model {logged.model}, epoch {served.epoch}, decided again: ", end="")
        console.print("[green]the same[/]" if agrees else "[red]not the same[/]")
        for place, slot in enumerate(served.slots, 1):
            via = "" if slot.via is None else f" via node {slot.via}"
            how = ("explored" if slot.explored else "greedy") + via
            numbers = f"score {slot.score:+.4f}  propensity {slot.propensity:.3g}"
            line = f"  {place}. {slot.arm!s:<24} {numbers}  {how}"
            console.print(line, highlight=False, markup=False, soft_wrap=True)
    if not agrees:
        raise typer.Exit(1)
