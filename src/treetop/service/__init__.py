"""The bandit behind HTTP. Needs the extra `serve`.

Reading order: wire (what travels), problems (what can be wrong), tokens (who may), logs and metrics (what is seen),
refits and refit (when and how), service (the bandit of a process, with its watch over new models), http (one request),
deciding, rewarding and asking (what the routes do), openapi (what is promised), app (the routes), worker (a process),
serve (several).
"""
