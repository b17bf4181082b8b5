"""The core's keyed randomness once more, with Python's whole numbers."""

MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15


def mix(z: int) -> int:
    """The finaliser of splitmix64."""
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & MASK
    return z ^ (z >> 31)


def derive(key: int, part: int) -> int:
    return mix(mix((key + GOLDEN) & MASK) ^ ((part * 0xD1342543DE82EF95 + 1) & MASK))


class Stream:
    """Draws that follow from a key."""

    def __init__(self, key: int) -> None:
        self.state = key

    def below(self, n: int) -> int:
        """Uniform in [0, n): the incomplete last stretch of 64 bits is drawn again."""
        while True:
            self.state = (self.state + GOLDEN) & MASK
            if (drawn := mix(self.state)) >= 2**64 % n:
                return drawn % n
