"""Which rounds are complete, and what of them does learning need?

Rounds whose rewards have been waited for, sealed once into immutable files of plain arrays; the log stays the truth for
what was acknowledged, and everything here can be made again from it. Reading order: schema (what the files hold),
manifest (which files count), binding (whether they are those of a log), storage (segments and deltas to files and
back), compaction (what left the log leaves the segments), seal (from the log into segments), reading (segments and the
rest of the log as one history), summing (the first rounds as sums and the samples that are still read). Imports `log`
and the array files of `model.storage`; knows nothing of models or learners.
"""
