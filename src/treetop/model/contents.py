"""What the manifest of a saved model says beside its files, and the fields of a model from both.

`model` is a `Model`, whose module imports this one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from treetop.arrays import check_int
from treetop.model.coverage import load_coverage
from treetop.model.learned_routing import load_learned_routing, load_rows
from treetop.model.measure import load_measure
from treetop.model.pooled_state import load_pooled
from treetop.model.prior import load_prior
from treetop.model.storage import FILES, FORMAT, OPTIONAL, VERSION, read_array
from treetop.tree.tree import Tree


def model_numbers(model: Any) -> dict[str, Any]:
    """What the manifest says beside its files.

    >>> import numpy as np
    >>> from treetop.model.model import Model
    >>> model = Model.from_weights(Tree([-1, 0, 0], [1, 2]), np.eye(3), np.zeros((5, 3)), epoch=7)
    >>> model_numbers(model)["epoch"], model_numbers(model)["columns"]
    (7, 3)
    """
    coverage = model.coverage
    return {
        "format": FORMAT,
        "version": VERSION,
        "epoch": model.epoch,
        "n_seen": model.n_seen,
        "geometric": model.geometric,
        "columns": model.route_rows.columns,
        "pooled": model.pooled.numbers() if model.pooled else None,
        "learned_routing": model.learned_routing.numbers() if model.learned_routing else None,
        **({"measure": model.measure.numbers()} if model.measure else {}),
        **({"prior": model.prior.scale} if model.prior else {}),
        **({"coverage": coverage.groups, "saturation": coverage.saturation} if coverage else {}),
    }


def read_arrays(source: Path, manifest: dict[str, Any]) -> dict[str, NDArray[Any]]:
    """The arrays that the manifest lists, memory-mapped, after their checksums were compared.

    >>> read_arrays(Path("no/such/model"), {"files": {}})
    {}
    """
    kinds = FILES | OPTIONAL
    return {name: read_array(source / f"{name}.npy", facts, kinds[name]) for name, facts in manifest["files"].items()}


def model_fields(arrays: dict[str, NDArray[Any]], manifest: dict[str, Any]) -> dict[str, Any]:
    """The fields of a model, from its arrays and numbers.

    >>> import numpy as np
    >>> from treetop.model.model import Model
    >>> model = Model.from_weights(Tree([-1, 0, 0], [1, 2]), np.eye(3), np.zeros((5, 3)), epoch=7)
    >>> Model(**model_fields(model._arrays(), model_numbers(model))).epoch
    7
    """
    columns = check_int("columns", manifest["columns"], 1)
    return {
        "tree": Tree(arrays["parents"], arrays["leaf_of"]),
        "route_rows": load_rows(arrays, "routing", columns),
        "reward_rows": load_rows(arrays, "rewards", columns),
        "epoch": manifest["epoch"],
        "n_seen": manifest["n_seen"],
        "geometric": manifest["geometric"],
        "pooled": load_pooled(arrays, manifest["pooled"]),
        "feature_scale": arrays.get("feature_scale"),
        "learned_routing": load_learned_routing(arrays, manifest["learned_routing"], columns),
        **load_measure(arrays, manifest.get("measure")),
        "coverage": load_coverage(arrays, manifest.get("coverage"), manifest.get("saturation", 0.0)),
        "prior": load_prior(arrays, manifest.get("prior"), columns),
    }
