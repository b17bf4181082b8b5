"""The same over HTTP: how does a request become a durable answer?

Reading order: schema (what travels), problems (what can be wrong), tokens (who may), logs and metrics (what is seen),
refit_scheduler and refit_process (when and how), service (the bandit of a process, with its watch over new models),
http (one request), decide, reward and admin (what the routes do), openapi (what is promised), app (the routes), worker
(a process), serve (several). Needs the extra `serve`. Imports `bandit`; nothing of `experiments` or `paper`.
"""
