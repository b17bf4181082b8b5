"""What was acknowledged?

Decisions and rewards, durable before a request is answered, in SQLite or PostgreSQL. Reading order: records (what a log
holds), base (the interface), open (which log an address means), group (one commit for many writers), connection (what
is needed of a database), schema (its tables), pack (arrays as bytes), write (what one transaction writes), retention
(what is deleted), ownership (whose log it is), sql (the log in SQL), sqlite and postgres (the two databases), sample
(rounds for the learner), entries and transfer (export and import), blocks and segments (complete rounds in columns),
slot_table (a row a slot), series (figures for the dashboard). Imports `records`, `arrays` and, for segments, the array
files of `model.storage`; knows nothing of models, policies or learners.
"""
