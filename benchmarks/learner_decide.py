"""What a decision with treetop's learner costs at many arms, beside the paper's on the same tree.

    python benchmarks/learner_decide.py [--shape amazon-3m] [--arms N] [--contexts 3000] [--beam 10] [--cache DIR]

The paper's model is that of `treetop bench`. Treetop's has the same tree and the same routing of nodes, and of every
arm a regressor and a routing function. They are made up, and about as dense as learned ones:

- A regressor is a sum of the contexts that it is fitted from, as ridge regression's is: the paper's row of the arm,
  which has those of the rounds, and the labelled rows that `LabelSamples` finds for it, with random factors. At 2.8 M
  arms it has 179 weights on average, as many as 3.6 contexts; on eurlex57k, debian and tate after 20,000 rounds 1,075,
  132 and 54, as many as 9.0, 4.1 and 4.3.
- A routing function has ROUTED times as many weights, at the features of the regressor's largest; STRAYED of them
  stand at the next arm of the tree instead, so that one in five is at a feature that the regressor has not. `--count
  FOLDER` prints both shares of a saved model.
- Pruned nodes have no regressors.

Both decide the same contexts, none of which they were made from, one at a time and in turns, each with its own
strategy. Making the models takes up to 11 GB, mapped files included.
"""

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from treetop import Budgeted, LabelSamples, Model, Policy
from treetop.arrays import Rows
from treetop.bench.setting import Contestant, contest
from treetop.bench.shape import Shape, cached_model, default_cache, shape_of
from treetop.bench.timing import commit, load_average, machine, seconds
from treetop.data.synthetic import generate
from treetop.model.pooled_state import PooledState
from treetop.policy.draws import event_key

ROUTED, STRAYED = 0.36, 0.28  # eurlex57k, debian and tate after 20,000 rounds: 0.26, 0.25, 0.63 and 0.09, 0.31, 0.46
ARMS_AT_ONCE = 65_536
MEANS = np.exp(-(np.linspace(0, 4, 65) ** 3)).astype(np.float32)
WEIGHTS = (0.97, 0.5)  # of the components: what those three models learned, about


class Growing:
    """Sparse rows that are written to files as they come, so that they take no memory."""

    def __init__(self, folder: Path, name: str, columns: int) -> None:
        self.paths = folder / f"{name}.index", folder / f"{name}.value"
        self.files = [path.open("wb") for path in self.paths]
        self.start: list[np.ndarray] = [np.zeros(1, np.int64)]
        self.columns, self.end = columns, 0

    def add(self, rows: sp.csr_matrix) -> None:
        rows.sort_indices()
        for file, array, kind in zip(self.files, (rows.indices, rows.data), (np.int32, np.float32), strict=True):
            file.write(np.ascontiguousarray(array, kind).data)
        self.start.append(rows.indptr[1:].astype(np.int64) + self.end)
        self.end += rows.nnz

    def rows(self) -> Rows:
        for file in self.files:
            file.close()
        index, value = (
            np.memmap(path, kind, "r") for path, kind in zip(self.paths, (np.int32, np.float32), strict=True)
        )
        return Rows(np.concatenate(self.start), index, value, self.columns)


def made_up(shape: Shape, paper: Model, folder: Path) -> Model:
    """The model as treetop's learner would have it."""
    tree, columns, rng = paper.tree, paper.n_features + 1, np.random.default_rng([shape.seed, 0xA7])
    _, _, X, Y = generate(shape.spec(1))
    known = LabelSamples.of(tree, X, Y)
    ones = sp.csr_matrix(np.ones((len(X), 1), np.float32))
    contexts = sp.hstack([X.csr(), ones], format="csr", dtype=np.float32)
    factor = rng.normal(0, 0.1, len(known.arm)).astype(np.float32)
    sampled = sp.csr_matrix((factor, (known.arm, known.row)), shape=(tree.n_arms, len(X)))
    routing, rewards = Growing(folder, "routing", columns), Growing(folder, "rewards", columns)
    routing.add(paper.route_rows.head(tree.n_nodes).csr())
    rewards.add(sp.csr_matrix((tree.n_nodes, columns), dtype=np.float32))
    limit = 0.0
    for first in range(0, tree.n_arms, ARMS_AT_ONCE):
        end = min(tree.n_arms, first + ARMS_AT_ONCE)
        own = paper.reward_rows.slice(tree.n_nodes + first, tree.n_nodes + end).csr()
        regressors = own + sampled[first:end] @ contexts
        if limit == 0.0:
            limit = float(np.quantile(np.abs(regressors.data[: 10**7]), 1 - ROUTED))
        rewards.add(regressors)
        routing.add(routed(regressors, limit, tree.position_of[first:end], rng))
    rounds = np.diff(paper.reward_rows.start[tree.n_nodes :]) // max(1, round(shape.nonzeros))
    counts = np.bincount(known.arm, minlength=tree.n_arms) + rounds
    pooled = PooledState(
        means=MEANS,
        sample_count=counts.astype(np.int32),
        trial_value=np.where(counts == 0, np.float32(1e-3), np.float32(0)),
        weights=WEIGHTS,
    )
    return Model(tree=tree, route_rows=routing.rows(), reward_rows=rewards.rows(), n_seen=shape.rounds, pooled=pooled)


def routed(regressors: sp.csr_matrix, limit: float, position: np.ndarray, rng: np.random.Generator) -> sp.csr_matrix:
    """Routing functions of these arms: the larger weights of their regressors, some at their neighbours in the tree."""
    arm = np.repeat(np.arange(regressors.shape[0]), np.diff(regressors.indptr))
    kept = (np.abs(regressors.data) > limit) & (regressors.indices < regressors.shape[1] - 1)
    arm, feature = arm[kept], regressors.indices[kept]
    order = np.argsort(position)
    after = np.empty(len(order), np.int64)
    after[order] = np.roll(order, -1)
    arm = np.where(rng.random(len(arm)) < STRAYED, after[arm], arm)
    weights = sp.csr_matrix((rng.normal(0.05, 0.15, len(arm)).astype(np.float32), (arm, feature)), regressors.shape)
    bias = sp.csr_matrix(rng.normal(-0.3, 0.3, (regressors.shape[0], 1)).astype(np.float32))
    return sp.hstack([weights[:, :-1], bias], format="csr", dtype=np.float32)


def both_models(shape: Shape, cache: Path) -> tuple[Model, Model, Rows]:
    """The paper's and treetop's, from the cache if they are there, and contexts."""
    subject = cached_model(shape, cache, say)
    folder = cache / f"{shape.name}-pooled"
    if not (folder / "model").is_dir():
        say("a model of treetop's learner")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        made_up(shape, subject.model, folder).save(folder / "model")
        for path in (*folder.glob("*.index"), *folder.glob("*.value")):
            path.unlink()
    return subject.model, Model.load(folder / "model"), subject.contexts


def count(model: Model) -> dict[str, Any]:
    """How dense a model is: weights a row, and how many of the routing functions' stand in the regressors too."""
    nodes, routes, rewards = model.tree.n_nodes, model.route_rows, model.reward_rows
    own, route = np.diff(rewards.start)[nodes:], np.diff(routes.start)
    found = {"arms": model.n_arms, "of_nodes_routing": float(route[:nodes].mean())}
    found |= {"of_nodes": float(np.diff(rewards.start)[:nodes].mean()), "of_arms": float(own.mean())}
    found |= {"layout_bytes": model.engine.layout().nbytes, "weights": len(routes.value) + len(rewards.value)}
    if not model.has_arm_routes:
        return found
    some = np.random.default_rng(0).permutation(model.n_arms)[:2000]
    pairs = [(routes.row(nodes + int(a)).index, rewards.row(nodes + int(a)).index) for a in some]
    all_ = sum(len(g) for g, _ in pairs)
    inside = sum(len(np.intersect1d(g, v)) for g, v in pairs)
    shares = {"routed": float(route[nodes:].sum() / max(1, own.sum())), "strayed": 1 - inside / max(1, all_)}
    return found | {"of_arms_routing": float(route[nodes:].mean())} | shares


def stages(policy: Policy, model: Model, contexts: Rows, n: int) -> list[float]:
    """Median microseconds by the clock: down the tree, the arms of the leaves, the choice."""
    native = policy.strategy.native(model.n_seen)  # type: ignore[attr-defined]
    rows = [contexts.row(i) for i in range(n)]
    asked = policy.k, policy.explore, policy.beam, *native
    taken = [model.engine.stages(x.start, x.index, x.value, event_key(str(i)), *asked) for i, x in enumerate(rows)]
    return [round(float(us), 1) for us in np.median(np.array(taken), axis=0) * 1e6]


def lines(policy: Policy, model: Model, contexts: Rows) -> float:
    """Cache lines of the layout that a search reads, on average."""
    some = [contexts.row(i) for i in range(min(100, len(contexts)))]
    return float(np.mean([len(model.engine.lines(x.start, x.index, x.value, policy.k, policy.beam)) for x in some]))


def measure(paper: Model, treetop: Model, contexts: Rows, n: int, beam: int) -> dict[str, Any]:
    singles = [contexts.row(i).csr() for i in range(min(n, len(contexts)))]
    models = {"paper": (Policy(beam=beam), paper), "treetop": (Policy(beam=beam, strategy=Budgeted()), treetop)}

    def contestant(name: str) -> Contestant:
        policy, model = models[name]
        call = lambda first, n: seconds(lambda i: policy.decide(model, singles[i], event_id=i), n, first)  # noqa: E731
        return Contestant({"name": name, **count(model)}, call, len(singles))

    rows = contest([contestant(name) for name in models])
    for row, (policy, model) in zip(rows, models.values(), strict=True):
        row["stages_us"] = stages(policy, model, contexts, len(singles))
        row["lines"] = lines(policy, model, contexts)
        row["candidates"] = len(policy.explain(model, singles[0]).id)
    ratios = {f"ratio_{key}": rows[1][key] / rows[0][key] for key in ("cpu_ms", "median_ms", "layout_bytes")}
    return {"rows": rows, **ratios, "commit": commit(), "machine": machine(), "load_average": load_average()}


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="amazon-3m")
    parser.add_argument("--arms", type=int)
    parser.add_argument("--contexts", type=int, default=3000)
    parser.add_argument("--beam", type=int, default=10)
    parser.add_argument("--cache", type=Path, default=default_cache())
    parser.add_argument("--count", type=Path, metavar="FOLDER", help="only counts the weights of a saved model")
    asked = parser.parse_args()
    if asked.count:
        print(json.dumps(count(Model.load(asked.count)), indent=1))
        return
    paper, treetop, contexts = both_models(shape_of(asked.shape, asked.arms, {}), asked.cache)
    print(json.dumps(measure(paper, treetop, contexts, asked.contexts, asked.beam), indent=1))


if __name__ == "__main__":
    main()
