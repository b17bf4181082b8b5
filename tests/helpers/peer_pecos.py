"""libpecos trains, saves and predicts, in the peers' environment.

    .venv-peers/bin/python tests/helpers/peer_pecos.py FOLDER SPLITS BIAS

FOLDER has X.npz, Y.npz and T.npz (contexts to predict for); chain/, model/ and beam-B.npz are written there.
"""

import sys
from typing import Any

import scipy.sparse as sp
from pecos.xmc import Indexer, LabelEmbeddingFactory
from pecos.xmc.xlinear.model import XLinearModel

folder, splits, bias = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
read: list[Any] = [sp.load_npz(f"{folder}/{name}.npz") for name in "XYT"]
X, Y, T = (matrix.astype("float32").tocsr() for matrix in read)
vectors = LabelEmbeddingFactory.create(Y, X, method="pifa", threads=1)
chain = Indexer.gen(vectors, nr_splits=splits, max_leaf_size=5, threads=1, seed=0)
chain.save(f"{folder}/chain")
model = XLinearModel.train(X, Y.tocsc(), C=chain, threads=1, bias=bias)
model.save(f"{folder}/model")
for beam in (2, 5, 100):
    found = model.predict(T, beam_size=beam, only_topk=5, post_processor="l3-hinge")
    sp.save_npz(f"{folder}/beam-{beam}.npz", found.tocsr())
