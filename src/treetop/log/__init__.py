"""What was acknowledged?

Decisions and rewards, durable before anybody is answered, in SQLite or PostgreSQL. Reading order: records, base (the
interface), open, group (many writers, one commit), sql (the log in SQL), sqlite and postgres (what the two databases do
differently), sample (rounds for the learner), series (figures for the dashboard), transfer (export and import). Imports
`records` and `arrays`; knows nothing of models, policies or learners.
"""
