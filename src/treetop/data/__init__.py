"""Where do labelled rows come from?

The bundled set, files of every common form, the paper's six sets, and made-up ones of any size. Imports `arrays`; knows
nothing of bandits.
"""
