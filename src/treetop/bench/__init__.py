"""How fast, beside whom?

Timings, always beside others' in the same run, and checked against slow twins. Nothing asserts a timing. `shape` makes
models, `timing` has the clocks, `reference` the slow twins, `peers` the others, `setting` what a bench gets and gives
back; `decide`, `learn`, `load` and `serve` (with `baseline_app` and `http_load`) are the benches that `subjects` lists;
`subprocesses` measures in fresh processes; `table` prints. Imports everything but the command line.
"""
