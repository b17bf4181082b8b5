"""The nearest items of every row by faiss, for `shop.py`: `python benchmarks/shortlist.py ITEMS ROWS COUNT OUT`.

Needs faiss and NumPy, nothing of treetop: it runs in the environment of the peers (`make bench-peers`). Prints seconds
to build the index and seconds a row, one row at a time on one thread.
"""

import json
import sys
import time

import faiss  # type: ignore[import-not-found,import-untyped,unused-ignore]
import numpy as np

LINKS, BUILD_DEPTH, SEARCH_DEPTH = 32, 100, 200  # of the graph


def main(items: str, rows: str, count: int, out: str) -> None:
    vectors, asked = np.load(items), np.load(rows)
    started = time.perf_counter()
    index = faiss.IndexHNSWFlat(vectors.shape[1], LINKS, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = BUILD_DEPTH
    index.add(vectors)
    built = time.perf_counter() - started
    index.hnsw.efSearch = SEARCH_DEPTH
    faiss.omp_set_num_threads(1)
    few = asked[:1000]
    started = time.perf_counter()
    for row in few:
        index.search(row[None], count)
    each = (time.perf_counter() - started) / len(few)
    faiss.omp_set_num_threads(faiss.omp_get_max_threads())
    np.save(out, index.search(asked, count)[1].astype(np.int32))
    print(json.dumps({"build_seconds": built, "row_seconds": each, "version": faiss.__version__}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
