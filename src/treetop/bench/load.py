"""`bench load`: a model to disk, from disk to its first decision, and the memory it serves from."""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from treetop.bench.peers import save_rows
from treetop.bench.setting import Result, Setting, with_pecos
from treetop.bench.shape import weights
from treetop.bench.subprocesses import in_subprocess
from treetop.errors import Disagreement
from treetop.model.model import Model


def load(setting: Setting) -> Result:
    """Saved here, opened by fresh processes with the files in the cache; the second one counts."""
    result, subject = Result(), setting.model()
    setting.cache.mkdir(parents=True, exist_ok=True)
    stored = sum(weights(subject.model).values())
    with tempfile.TemporaryDirectory(dir=setting.cache, prefix="load-") as folder:
        setting.say("saving")
        began = time.perf_counter()
        subject.model.save(f"{folder}/model")
        saved = time.perf_counter() - began
        save_rows(subject.contexts, Path(folder) / "contexts.npz")
        size = sum(file.stat().st_size for file in Path(folder, "model").iterdir())
        arguments = {"folder": f"{folder}/model", "contexts": f"{folder}/contexts.npz", "beam": setting.beams[0]}
        setting.say("opened by fresh processes")
        facts = [in_subprocess("open", **arguments) for _ in range(2)][-1]
        result.checks["saved and opened"] = _same(
            setting, subject.model, Model.load(f"{folder}/model"), subject.contexts.head(50)
        )
    serving = facts["anonymous_bytes"] + facts["mapped_bytes"]
    row = {"name": "treetop", "arms": subject.model.n_arms, "weights": stored, "save_seconds": round(saved, 3)}
    row |= {"open_seconds": round(facts["load_seconds"], 3)}
    row |= {"first_decision_seconds": round(facts["first_decision_seconds"], 3)}
    row |= {"cpu_seconds": round(facts["cpu_seconds"], 3)}
    row |= {"serving_gb": round(serving / 1e9, 3), "bytes_per_weight": round(serving / max(1, stored), 2)}
    result.rows.append(row | {"disk_gb": round(size / 1e9, 3)})
    with ExitStack() as stack:
        if with_pecos(setting, subject, result, stack):
            memory, theirs = result.checks["pecos memory"], stored - weights(subject.model)["node_weights"]
            row = {"name": "pecos", "arms": subject.model.n_arms, "weights": theirs}
            row |= {"open_seconds": memory["load_seconds"], "bytes_per_weight": memory["bytes_per_weight"]}
            result.rows.append(row)
    return result


def _same(setting: Setting, saved: Model, opened: Model, contexts: object) -> dict[str, int]:
    """The opened model decides as the saved one did."""
    policy = setting.policy(setting.beams[0])
    a, b = (policy.decide_batch(model, contexts, seed=0) for model in (saved, opened))
    if not (np.array_equal(a.arms, b.arms) and np.array_equal(a.scores, b.scores)):
        raise Disagreement("the model decides differently after saving and loading")
    return {"contexts": len(a.arms)}
