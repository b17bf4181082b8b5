"""What holds over many runs?

Settings times seeds in a folder that outlives a kill, tuning, comparisons with their significance, truths that are
known, and what full information would bring. Imports `simulation`; prints and draws nothing.
"""
