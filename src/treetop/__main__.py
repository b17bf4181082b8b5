"""`python -m treetop` is the command `treetop`."""

from treetop.cli import main

main()
