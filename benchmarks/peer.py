"""What others do with the same weights, contexts and samples. Runs in the peers' own environment, without treetop.

    .venv-peers/bin/python benchmarks/peer.py pecos     # then one request in JSON a line; one answer a line

`treetop bench` and `benchmarks/quality.py` start it and compare; `make bench-peers` sets the environment up. Times are
pairs: seconds by the clock, seconds of all cores together.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

Taken = tuple[float, float]


def read_rows(path: str) -> sp.csr_matrix:
    with np.load(path) as a:
        shape = (len(a["start"]) - 1, int(a["columns"]))
        return sp.csr_matrix((a["value"], a["index"], a["start"].astype(np.int32)), shape=shape)


def clocked(call: Callable[[], Any]) -> Taken:
    """Seconds by the clock, and of all cores together in this process."""
    worked, began = time.process_time(), time.perf_counter()
    call()
    ended = time.perf_counter()
    return ended - began, time.process_time() - worked


def resident() -> int:
    """Bytes of memory this process has now."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Pecos:
    """libpecos: beam search and leaf scores, hash-chunked; its clustering; its solver."""

    def load(self, folder: str, contexts: str) -> dict[str, float]:
        from pecos.core import ScipyCsrF32, clib
        from pecos.xmc.base import HierarchicalMLModel

        self.clib, self.Csr = clib, ScipyCsrF32
        before, began = resident(), time.perf_counter()
        self.model = HierarchicalMLModel.load(folder, is_predict_only=True, weight_matrix_type="HASH_CHUNKED")
        found = {"seconds": time.perf_counter() - began, "bytes": float(resident() - before)}
        self.X = read_rows(contexts)
        self.rows = [self.X[i] for i in range(self.X.shape[0])]
        return found

    def single(self, beam: int, k: int, first: int, n: int) -> list[Taken]:
        """One context a call of `predict`, as a user calls it."""
        predict, rows = self.model.predict, self.rows[first : first + n]
        return [clocked(lambda x=x: predict(x, beam_size=beam, only_topk=k, threads=1)) for x in rows]

    def bare(self, beam: int, k: int, first: int, n: int) -> list[Taken]:
        """One context a call of the C function under it."""
        return [clocked(lambda x=x: self._call(x, beam, k, 1)) for x in self.rows[first : first + n]]

    def batch(self, beam: int, k: int, threads: int, first: int, n: int) -> list[Taken]:
        X = self.X[first : first + n]
        return [clocked(lambda: self._call(X, beam, k, threads))]

    def top(self, beam: int, k: int, first: int, n: int) -> list[list[list[float]]]:
        """The k best arms of each context: positions and scores."""
        found = self._call(self.X[first : first + n], beam, k, 1)
        ends = zip(found.indptr, found.indptr[1:], strict=False)
        return [[found.indices[a:b].tolist(), found.data[a:b].tolist()] for a, b in ends]

    def _call(self, X: sp.csr_matrix, beam: int, k: int, threads: int) -> sp.csr_matrix:
        from pecos.core.base import ScipyCompressedSparseAllocator

        out = ScipyCompressedSparseAllocator()
        self.clib.xlinear_predict(self.model.model_chain, X, beam, None, k, threads, out)
        return out.get()

    def cluster(self, vectors: str, max_leaf: int, threads: int, gb: int) -> Taken:
        """Its balanced 2-means over the same arm vectors; the process ends if it wants more memory than `gb`."""
        import resource

        from pecos.xmc.base import HierarchicalKMeans

        resource.setrlimit(resource.RLIMIT_AS, (gb * 10**9, gb * 10**9))
        V = read_rows(vectors)
        return clocked(
            lambda: HierarchicalKMeans.gen(
                V, nr_splits=2, max_leaf_size=max_leaf, imbalanced_ratio=0.0, threads=threads, seed=0
            )
        )

    def solve(self, contexts: str, samples: str, threads: int) -> Taken:
        """Squared hinge by dual coordinate descent, every arm on its own samples; rewards above 1/2 are positive.

        With a threshold of 0 it would store the zeros of all features, ten times as slowly.
        """
        from pecos.xmc.base import MLModel, MLProblem

        X = read_rows(contexts)
        with np.load(samples) as a:
            start, rows, target = a["start"], a["rows"], a["target"]
        arm = np.repeat(np.arange(len(start) - 1), np.diff(start))
        shape = (X.shape[0], len(start) - 1)
        one = np.ones(len(rows), np.float32)
        M = sp.csr_matrix((one, (rows, arm)), shape=shape)
        M.data[:] = 1
        positive = target > 0.5
        Y = sp.csc_matrix((one[positive], (rows[positive], arm[positive])), shape=shape)
        Y.data[:] = 1
        C = sp.identity(shape[1], dtype=np.float32, format="csc")
        problem = MLProblem(X, Y, C, M, None)
        return clocked(lambda: MLModel.train(problem, threshold=1e-6, threads=threads))


class XLinear:
    """libpecos as its users train and ask it: PIFA, hierarchical k-means, XLinear, each with its own defaults."""

    TREE: ClassVar = {"indexer_type": "hierarchicalkmeans", "nr_splits": 16, "max_leaf_size": 100}  # its defaults

    def train(self, contexts: str, labels: str, threads: int) -> Taken:
        """On rows of which every label is known; a reward above 0 is a label."""
        from pecos.xmc import Indexer, LabelEmbeddingFactory
        from pecos.xmc.xlinear.model import XLinearModel

        X, Y = read_rows(contexts), read_rows(labels)
        Y.data[:] = Y.data > 0
        Y.eliminate_zeros()

        def fit() -> None:
            vectors = LabelEmbeddingFactory.create(Y, X, method="pifa", threads=threads)
            chain = Indexer.gen(vectors, threads=threads, **self.TREE)
            model = XLinearModel.train(X, sp.csc_matrix(Y), C=chain, threads=threads)
            with tempfile.TemporaryDirectory() as folder:  # as it is served: the same answers, ten times as fast
                model.save(folder)
                self.model = XLinearModel.load(folder, is_predict_only=True)

        return clocked(fit)

    def top(self, contexts: str, beam: int, k: int, threads: int) -> list[list[int]]:
        """The k best arms of each context; fewer where a beam reaches fewer."""
        found = self.model.predict(read_rows(contexts), only_topk=k, beam_size=beam, threads=threads)
        return [found.indices[a:b].tolist() for a, b in zip(found.indptr, found.indptr[1:], strict=False)]


class Sklearn:
    """scikit-learn: one estimator an arm on [x; 1], in a loop."""

    def ridge(self, contexts: str, samples: str, arms: int) -> Taken:
        from sklearn.linear_model import Ridge

        return self._each(contexts, samples, arms, lambda: Ridge(alpha=0.5, fit_intercept=False))

    def svr(self, contexts: str, samples: str, arms: int) -> Taken:
        from sklearn.svm import LinearSVR

        return self._each(contexts, samples, arms, lambda: LinearSVR(epsilon=0.0, C=1.0, fit_intercept=False))

    @staticmethod
    def _each(contexts: str, samples: str, arms: int, make: Callable[[], Any]) -> Taken:
        import warnings

        warnings.simplefilter("ignore")  # LinearSVR says when 1,000 passes did not converge
        X = read_rows(contexts)
        Z = sp.csr_matrix(sp.hstack([X, np.ones((X.shape[0], 1), np.float32)]))
        with np.load(samples) as a:
            start, rows, target = a["start"], a["rows"], a["target"]

        def fit() -> None:
            for g in range(arms):
                mine = slice(start[g], start[g + 1])
                make().fit(Z[rows[mine]], target[mine])

        return clocked(fit)


class VowpalWabbit:
    """--cb_explore_adf --squarecb: a feature an arm crossed with the context, so that an arm has its own weights."""

    def load(self, contexts: str, arms: int) -> None:
        import vowpalwabbit

        self.vw = vowpalwabbit.Workspace("--cb_explore_adf --squarecb -q SA -b 24 --quiet")
        X = read_rows(contexts)
        self.shared = [
            "shared |S " + " ".join(f"{f}:{v:.5g}" for f, v in zip(X[i].indices, X[i].data, strict=True))
            for i in range(X.shape[0])
        ]
        self.arms = [f"|A a{arm}" for arm in range(arms)]
        for i in range(3):  # as if it had learned a little
            shown = i % arms
            lines = [self.shared[i], *self.arms]
            lines[1 + shown] = f"0:-1:{1 / arms} {self.arms[shown]}"
            self.vw.learn(lines)

    def text(self, first: int, n: int) -> list[Taken]:
        """A decision from text, parsing included."""
        return [clocked(lambda i=i: self.vw.predict([self.shared[i], *self.arms])) for i in range(first, first + n)]

    def parsed(self, first: int, n: int) -> list[Taken]:
        """A decision from parsed examples."""
        found = []
        for i in range(first, first + n):
            examples = self.vw.parse([self.shared[i], *self.arms])
            found.append(clocked(lambda examples=examples: self.vw.predict(examples)))
            self.vw.finish_example(examples)
        return found


PEERS = {"pecos": Pecos, "xlinear": XLinear, "sklearn": Sklearn, "vw": VowpalWabbit}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints must not be taken for an answer
    peer = PEERS[sys.argv[1]]()
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"result": getattr(peer, request.pop("do"))(**request)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
