"""What would have happened?

Labelled data played as bandit feedback: a stream, which slots are observed, what changes half-way, and the loop that
decides, reveals and refits. Imports `data`, `policy` and `learning`; knows nothing of folders of results.
"""
