"""Does the paper hold?

Its figures, tables and claims beside ours, each from runs that are played once and kept. Imports `experiments` and
`report`; nothing below imports it, but for the command line.
"""
