"""The runs behind the paper's figures and tables: played once, kept in a folder, shared by all that show them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from treetop.arrays import Floats, check_float, check_int
from treetop.data.datasets import Dataset, load
from treetop.data.presets import PRESETS
from treetop.experiments.comparison import Series
from treetop.experiments.execute import ProgressBars, Starter, Worlds, execute
from treetop.experiments.realizable import NoisyRewards, fit_truth, load_or_fit
from treetop.experiments.records import RunRecord
from treetop.experiments.settings import Plan, Settings
from treetop.experiments.truth import BEST_ARMS, KEPT, SparseTruth, Truth, label_hits
from treetop.experiments.tuning import PARAMETER, climb
from treetop.files import put
from treetop.paper.published import ORDER, K
from treetop.paper.results_folder import series
from treetop.paper.sizes import Sizes
from treetop.simulation.play import RunProgress

DATA = ("debian", "synthetic:like=eurlex-4k", "synthetic:like=wiki10-31k", "synthetic:like=amazoncat-13k")
LARGE = "synthetic:like=amazon-3m,rows=60000"  # for inference times, where nothing else is said
QUICK_DATA = ("debian", "synthetic:arms=1500,features=3000,rows=12000,init=2000,nonzeros=40")
REALIZABLE_ROUNDS, QUICK_REALIZABLE = 50_000, 3_000
REALIZABLE_PRODUCTS = 20_000_000_000  # rounds x arms x features of a row, in each of its twenty runs over all arms
REALIZABLE_EPOCH = 64  # doubled from then on: Theorem 1 has epochs that end after 2^l rounds
EXPLORE, BEAM = 3, 10
SIGMA = 0.1  # of the noise in the realizable experiment; the paper gives none


@dataclass(frozen=True, eq=False)
class RunCache:
    """Datasets and the runs on them, kept in the folder `out`. A run that is there is read, not played again."""

    data: tuple[str, ...]
    seeds: tuple[int, ...]
    out: Path
    quick: bool = False
    horizon: int | None = None
    data_dir: Path | None = None
    bars: ProgressBars | None = None
    sigma: float = SIGMA
    large: str | None = None  # the set of the inference times; that with the most arms if None
    flat_horizon: int | None = None  # rounds at most of the realizable experiment over all arms
    _load: Callable[[str], Dataset] = field(init=False, repr=False)
    _truth: Callable[[str], tuple[Truth, Floats]] = field(init=False, repr=False)
    _starter: Callable[[str], Starter] = field(init=False, repr=False)
    _known: dict[str, tuple[dict[str, Any], Sizes]] = field(default_factory=dict, init=False, repr=False)
    _played: dict[tuple[str, str], list[Series]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.data or not self.seeds:
            raise ValueError(f"{len(self.data)} datasets and {len(self.seeds)} seeds; at least 1 of each is needed")
        check_float("sigma", self.sigma, 0)
        check_int("flat_horizon", 1 if self.flat_horizon is None else self.flat_horizon, 1)
        object.__setattr__(self, "_load", lru_cache(maxsize=1)(self._loaded))
        object.__setattr__(self, "_truth", lru_cache(maxsize=1)(self._true_means))
        object.__setattr__(self, "_starter", lru_cache(maxsize=1)(lambda spec: Starter(self.dataset(spec))))

    def _loaded(self, spec: str) -> Dataset:
        return load(spec, data_dir=self.data_dir) if spec in PRESETS else load(spec)

    def dataset(self, spec: str) -> Dataset:
        """The data; the last set asked for stays in memory."""
        return self._load(spec)

    def about(self, spec: str) -> tuple[dict[str, Any], Sizes]:
        """Facts about a dataset, and how it is played."""
        if spec not in self._known:
            data = self.dataset(spec)
            self._known[spec] = dict(data.facts()), Sizes.of(spec, data, self.quick, self.horizon)
        return self._known[spec]

    def facts(self, spec: str) -> dict[str, Any]:
        return self.about(spec)[0]

    def sizes(self, spec: str) -> Sizes:
        return self.about(spec)[1]

    def tree(self, spec: str) -> list[Series]:
        """The four strategies of Table 2 under the hierarchy, with a beam of 10."""
        settings = tuple(self._settings(spec, name, BEAM) for name in ORDER)
        return self._once(spec, "tree", lambda: series(self._records(spec, settings, self.seeds)))

    def flat(self, spec: str) -> Series:
        """IGW with a beam of all leaves: Algorithm 1 over all arms."""
        settings = (self._settings(spec, "igw", None),)
        found = self._once(spec, "flat", lambda: series(self._records(spec, settings, self.seeds), prefix=""))[0]
        return replace(found, name="IGW-topk (all arms)", style="igw-all")

    def _once(self, spec: str, what: str, play: Callable[[], list[Series]]) -> list[Series]:
        if (spec, what) not in self._played:
            self._played[spec, what] = play()
        return self._played[spec, what]

    def _settings(self, spec: str, strategy: str, beam: int | None) -> Settings:
        size = self.sizes(spec)
        return Settings(
            strategy,
            {},
            K,
            EXPLORE,
            beam,
            max_leaf=size.max_leaf,
            init=size.init,
            horizon=size.horizon,
            first_epoch=size.first_epoch,
        )

    def _records(
        self, spec: str, settings: tuple[Settings, ...], seeds: Sequence[int], worlds: Worlds | None = None
    ) -> list[dict[str, Any]]:
        """Played seed by seed, each in a folder of its own: another seed does not make the old ones void."""
        found: list[RunRecord] = []
        for seed in seeds:
            plan = Plan(spec, settings, (seed,), f"realizable:sigma={self.sigma:g}" if worlds else "labels")
            folder = self._folder(spec, asdict(plan), seed)
            found += execute(
                folder, plan, self._bars(spec), dataset=self.dataset(spec), worlds=worlds, starter=self._starter(spec)
            )
        return [{**asdict(record), "late_reward": record.late_reward} for record in found]

    def realizable(self, spec: str) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]]]:
        """Records of all strategies over all arms and with a beam of 10, and the parameters tuned for each.

        Tuned with the first seed over all of the rounds: a shorter stretch favours strategies that explore less.
        """
        found: list[dict[str, Any]] = []
        tuned: dict[str, dict[str, Any]] = {}
        for name, beam in (("all arms", None), (f"beam {BEAM}", BEAM)):
            tuned[name] = {style: self._tuned(spec, beam, style) for style in ORDER if PARAMETER[style]}
            for seed in self.seeds:
                found += [self._realizable(spec, beam, seed, style, tuned[name].get(style, {})) for style in ORDER]
        self.truth(spec)  # while its weights are there
        self._truth_file(spec).unlink(missing_ok=True)
        return found, tuned

    @property
    def chosen(self) -> bool:
        """Whether the datasets were chosen by the user: otherwise they are the default ones."""
        return self.data not in (DATA, QUICK_DATA)

    def easiest(self) -> str:
        """The set of the realizable experiment where one is enough: the paper's, or that with the fewest arms."""
        return min(self.data, key=lambda spec: ("eurlex" not in spec, self.facts(spec)["arms"]))

    def truth(self, spec: str) -> dict[str, Any]:
        """What a reader should know of a set's true mean rewards; in a file of its own, which outlives the weights."""
        path = self.out / "runs" / f"{_slug(spec)}-truth.json"
        if not path.is_file():
            found, _ = self._truth(spec)
            kept = KEPT if isinstance(found, SparseTruth) else None
            about = {
                "kept": kept,
                "hits": label_hits(found),
                "of": BEST_ARMS,
                "labels": self.facts(spec)["labels_per_row"],
            }
            put(path, lambda file: file.write(json.dumps(about).encode()))
        known: dict[str, Any] = json.loads(path.read_text())
        return known

    def _tuned(self, spec: str, beam: int | None, strategy: str) -> dict[str, float]:
        """The parameters that collect most with the first seed."""
        return climb(
            strategy,
            lambda tried: float(self._realizable(spec, beam, self.seeds[0], strategy, tried)["mean_reward"]),
            "small" if self.quick else "paper",
        )

    def _realizable(
        self, spec: str, beam: int | None, seed: int, strategy: str, parameters: dict[str, float]
    ) -> dict[str, Any]:
        """One run in a folder of its own: what was tried for tuning is not played again."""
        size, k, rounds = self.sizes(spec), self._slots(spec), self._rounds(spec, beam)
        settings = Settings(
            strategy,
            parameters,
            k,
            k // 2,
            beam,
            max_leaf=size.max_leaf,
            init=size.init,
            horizon=rounds,
            first_epoch=max(1, min(REALIZABLE_EPOCH, rounds // 8)),
        )
        worlds = partial(self._noisy, spec)
        return self._records(spec, (settings,), (seed,), worlds)[0]

    def _rounds(self, spec: str, beam: int | None) -> int:
        """Of the realizable experiment; fewer over all arms where there are many."""
        facts = self.facts(spec)
        most = min(self.sizes(spec).horizon, QUICK_REALIZABLE if self.quick else REALIZABLE_ROUNDS)
        products = max(1, round(facts["arms"] * facts["features_per_row"]))  # of a decision
        return most if beam else min(most, self.flat_horizon or most, max(1, REALIZABLE_PRODUCTS // products))

    def _noisy(self, spec: str, seed: int) -> NoisyRewards:
        return NoisyRewards(*self._truth(spec), self.sigma, seed)

    def _slots(self, spec: str) -> int:
        return min(50, max(2, int(self.facts(spec)["arms"]) // 10))  # the paper's 50, if there are arms for it

    def _true_means(self, spec: str) -> tuple[Truth, Floats]:
        """Kept in a file while it is needed: solved again it need not have the same bytes."""
        data = self.dataset(spec)
        return load_or_fit(self._truth_file(spec), data, partial(fit_truth, data), self._slots(spec))

    def _truth_file(self, spec: str) -> Path:
        return self.out / "runs" / f"{_slug(spec)}-truth.npz"

    def _folder(self, spec: str, asked: Any, seed: int) -> Path:
        digest = hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:8]
        return self.out / "runs" / f"{_slug(spec)}-seed{seed}-{digest}"

    def _bars(self, spec: str) -> ProgressBars | None:
        """Bars that name the dataset, since there are many."""
        if (bars := self.bars) is None:
            return None
        short = Path(spec).name if not spec.startswith("synthetic:") else "synthetic"

        def named_bar(name: str, total: int, done: int = 0) -> RunProgress:
            return bars(f"{short[:14]} {name}", total, done)

        return named_bar

    def seen(self) -> dict[str, dict[str, Any]]:
        """Facts about every dataset that was needed so far."""
        return {spec: facts for spec, (facts, _) in self._known.items()}

    def largest(self) -> str:
        return self.large or max(self.data, key=lambda spec: int(self.facts(spec)["arms"]))

    def options(self) -> str:
        """The same as options of the command line."""
        words = [*(f"--data {spec}" for spec in self.data), *(f"--seed {seed}" for seed in self.seeds)]
        words += ["--quick"] * self.quick + ([f"--horizon {self.horizon}"] if self.horizon else [])
        words += [f"--flat-horizon {self.flat_horizon}"] if self.flat_horizon else []
        words += [f"--sigma {self.sigma:g}"] * (self.sigma != SIGMA)
        return " ".join(words)

    def settings(self) -> dict[str, Any]:
        """What to tell a reader about how it was played."""
        return {
            "seeds": ", ".join(map(str, self.seeds)),
            "quick": self.quick,
            "k": K,
            "explore": EXPLORE,
            "beam": BEAM,
            **{self.facts(spec)["name"]: str(self.sizes(spec)) for spec in self.data},
        }


def named(facts: Mapping[str, Any]) -> dict[str, Any]:
    """What tells one dataset from another in a section's data.

    >>> named({"name": "debian", "arms": 34773, "rows": 53413})
    {'name': 'debian', 'synthetic': False, 'arms': 34773}
    """
    return {"name": facts["name"], "synthetic": bool(facts.get("synthetic")), "arms": facts["arms"]}


def _slug(spec: str) -> str:
    """A dataset's name for files."""
    name = spec if spec.startswith("synthetic:") else Path(spec).name
    return re.sub(r"[^\w=.-]+", "-", name).strip("-")[:60]
