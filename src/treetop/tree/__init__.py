"""Which arms belong together?

A balanced hierarchy over the arms, from labels, from vectors or from a taxonomy. Imports `arrays`; knows nothing of
contexts once a tree is built, nor of weights, rewards or time.
"""
