"""The same over HTTP: how does a request become a durable answer?

Reading order: schema (JSON), problems (errors), tokens (access), logs and metrics (operation), write_batcher (one
commit for many requests), refit_scheduler and refit_process (refits), service (what all requests of a worker share),
http (one request), decide, reward and admin (the handlers), openapi (the description), app (the routes), worker (a
process), serve (several), dashboard (pages for people), demo_traffic (`treetop demo --serve`). Needs the extra `serve`.
Imports `bandit`; nothing of `experiments` or `paper`.
"""
