"""One folder, one bandit: what is it, and what does it answer?

Policy, model, arm ids, settings and log in a folder, in the user's own ids. Reading order: config (settings),
catalogue (the arms of a new bandit), arm_index and vocabulary (ids and names to indices), state and folder (the files),
creation (a new folder), ownership and retention (whose log it is, and whether it may delete), arm_filter and snapshot
(deciding with one model), growth (new arms), promotion (the next model), results (what is returned), bandit (all of it
together). Imports `policy`, `learning` and `log`; knows nothing of HTTP, of simulations or of experiments.
"""
