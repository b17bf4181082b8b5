"""One folder, one bandit: what is it, and what does it answer?

Policy, model, catalogue, settings and log in a folder, in the user's own ids. Imports `policy`, `learning` and `log`;
knows nothing of HTTP, of simulations or of experiments.
"""
