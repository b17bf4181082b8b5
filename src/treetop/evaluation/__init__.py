"""What would another policy earn?

Logged rounds and the chances of what they showed under another policy, to its reward with an interval: estimators,
each a small module, and intervals that hold at any time. Imports `policy` and below; knows no folder, no log and no
command, which `bandit/evaluation.py` joins to it.
"""
