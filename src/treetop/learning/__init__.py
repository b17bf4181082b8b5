"""What does feedback teach?

The whole history to the next model: samples, solvers, the paper's learner and treetop's own, refit, and when to refit.
Imports `model` and the search of `policy`; knows nothing of folders, requests or where the feedback came from.
"""
