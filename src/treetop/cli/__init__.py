"""Which code runs when I type `treetop ...`?

Thin: parse, call, print. One module a group of commands, joined in `main`. Imports everything; nothing imports it.
"""
