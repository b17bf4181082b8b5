"""What is known at one moment?

`Model` is tree, routing and reward models of one epoch, frozen, and its files on disk. Imports `tree`; knows nothing of
how a decision is drawn or how weights are learned.
"""
