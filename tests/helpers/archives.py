"""The folders and files of the paper's sets in the repository's archives."""

from helpers.problems import topics
from helpers.writers import Parts

# The folder and the files of each in the repository's archives.
OLDER = {
    "eurlex-4k": ("Eurlex", "eurlex_"),
    "amazoncat-13k": ("AmazonCat", "amazonCat_"),
    "wiki10-31k": ("Wiki10", "wiki10_"),
    "wiki-500k": ("WikipediaLarge-500K", "WikipediaLarge-500K_"),
    "amazon-670k": ("Amazon", "amazon_"),
    "amazon-3m": ("Amazon-3M", "amazon-3M_"),
}

NEWER = {
    "eurlex-4k": "Eurlex-4K.bow",
    "amazoncat-13k": "AmazonCat-13K.bow",
    "wiki10-31k": "Wiki10-31K",
    "wiki-500k": "Wikipedia-500K",
    "amazon-670k": "Amazon670K.bow",
    "amazon-3m": "Amazon-3M.bow",
}


def parts(n: int = 90, seed: int = 0) -> Parts:
    X, Y = topics(n=n, seed=seed)
    cut = 2 * n // 3
    return X[:cut], Y[:cut], X[cut:], Y[cut:]
