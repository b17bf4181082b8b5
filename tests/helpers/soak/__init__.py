"""A service under load with faults at random times, and everything that it acknowledged looked for afterwards.

`cell` runs one combination of store and workers; `faults` is the list of what may happen to it. `scripts/soak.py` runs
them for half an hour, `tests/faults/test_soak.py` for some seconds.
"""
