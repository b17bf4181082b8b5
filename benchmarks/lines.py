"""How far a decision is from touching its memory: distinct cache lines a context, and how long they take by themselves.

    python benchmarks/lines.py MODEL CONTEXTS [--beam 10 --beam 30] [--count 2000] [--json]

MODEL is a folder of Model.save, CONTEXTS a scipy .npz of contexts. For every context the lines of the serving layout
that the search reads are noted; then decisions and replays (one word of each of these lines, in the order in which the
decision first read it, no arithmetic) take turns, and the medians are compared. The arrays of the tree, a small part,
are not counted.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import numpy as np
import scipy.sparse as sp

import treetop
from treetop.types import as_rows


def measure(model: treetop.Model, contexts: Any, beam: int, k: int) -> dict[str, Any]:
    """Medians in microseconds over all contexts, decisions and replays in passes of their own, three times each."""
    policy, rows = treetop.Policy(k=k, beam=beam), as_rows(contexts, model.n_features)
    singles = [rows.row(i) for i in range(len(rows))]
    lines = [model.engine.lines(x.start, x.index, x.value, k, beam) for x in singles]
    decided, replayed = [], []
    for _ in range(3):
        for i, x in enumerate(singles):
            began = time.perf_counter()
            policy.decide(model, x, event_id=i)
            decided.append(time.perf_counter() - began)
        replayed += [model.engine.touch(numbers)[0] for numbers in lines]
    decision, replay = (1e6 * float(np.median(times)) for times in (decided, replayed))
    return {
        "beam": beam, "contexts": len(singles), "lines": round(float(np.mean([len(n) for n in lines])), 1),
        "decision_us": round(decision, 1), "replay_us": round(replay, 1), "ratio": round(decision / replay, 2),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("contexts")
    parser.add_argument("--beam", type=int, action="append")
    parser.add_argument("--count", type=int, default=2000, help="how many contexts")
    parser.add_argument("-k", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    model = treetop.Model.load(asked.model)
    contexts = sp.csr_matrix(sp.load_npz(asked.contexts))[: asked.count]
    rows = [measure(model, contexts, beam, asked.k) for beam in asked.beam or [10]]
    if asked.json:
        print(json.dumps({"model": repr(model), "rows": rows}))
        return
    print(model)
    for row in rows:
        print(
            f"beam {row['beam']}: {row['lines']:,.0f} distinct lines a context; decision {row['decision_us']} us, "
            f"replay {row['replay_us']} us: {row['ratio']} times as long"
        )


if __name__ == "__main__":
    main()
