"""What is shown?

Context to slots: search the tree for effective arms, score them, let a strategy draw, state the propensities. Imports
`model`; search never draws, strategies never see the tree, and nothing here knows feedback, logs or refits.
"""
