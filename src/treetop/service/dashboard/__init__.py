"""How do people see the service?

`pages.py` and `relay.py` are a worker's side: access, forms, and passing requests on. `process.py` is a process of its
own that counts the log (`board.py`) and makes the pages (`views.py`); it runs only while somebody looks.
"""
