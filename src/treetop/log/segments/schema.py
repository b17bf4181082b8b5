"""What the files of segments and deltas hold: names, types, and their version. docs/segments.md explains it."""

from __future__ import annotations

FORMAT, VERSION = "treetop-segments", 4
MANIFEST = "manifest.json"
MAX_SHARDS = 65_536  # shards of arms, which their type can tell apart

# One entry a round, in the order of the log.
ROUNDS = {
    "position": "int64",
    "time": "float64",
    "epoch": "int64",
    "tree": "int32",  # which of the segment's `trees`
    "slots": "int32",
    "component_count": "int32",
}
# The contexts as compressed sparse rows: one row a round, however many samples point to it.
CONTEXTS = {"context_start": "int64", "context_index": "int32", "context_value": "float32"}
# One entry a sample, that is, a slot of a round: by shard, within a shard in the order of the log.
SAMPLES = {
    "row": "int32",  # its round, and so its context
    "slot": "int32",
    "arm": "int32",
    "node": "int32",
    "propensity": "float64",
    "score": "float32",
    "explored": "bool",
    "reward": "float64",  # NaN: none was known
    "reward_position": "int64",  # 0: none
}
# The samples of shard s are [shard_start[s], shard_start[s + 1]); `component` has those of sample after sample.
OTHERS = {"component": "float32", "shard_start": "int64"}
# How rounds were decided, one entry each; segments of before this was kept have none of it.
ORIGINS = {
    "settings": "int32",  # which of the segment's `made`
    "filter": "int32",  # which of its `filters`
    "removals": "int64",
}
SEGMENT = {**ROUNDS, **CONTEXTS, **SAMPLES, **OTHERS}
DELTA = {"decision": "int64", "slot": "int32", "value": "float64", "position": "int64"}
