"""Numbers from outside: the right kind and within limits, or an error that names the value and the limit."""

from __future__ import annotations

import math
import operator

INT32_MAX = 2**31 - 1


def whole(name: str, value: object, low: int, high: int = INT32_MAX) -> int:
    """`value` as an int within [low, high], or an error that names it.

    >>> whole("k", 5, 1, 10)
    5
    >>> whole("k", 50, 1, 10)
    Traceback (most recent call last):
    ValueError: k is 50; it must lie in [1, 10]
    """
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{name} must be a whole number, not {value!r}") from None
    if isinstance(value, bool) or not low <= number <= high:
        raise ValueError(f"{name} is {value!r}; it must lie in [{low}, {high}]")
    return number


def real(name: str, value: object, low: float, high: float = math.inf) -> float:
    """`value` as a finite float within [low, high], or an error that names it.

    >>> real("epsilon", "0.1", 0, 1)
    Traceback (most recent call last):
    TypeError: epsilon must be a number, not '0.1'
    """
    if isinstance(value, str | bytes):
        raise TypeError(f"{name} must be a number, not {value!r}")
    try:
        number = float(value)  # type: ignore[arg-type]
    except OverflowError:
        number = math.inf
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a number, not {value!r}") from None
    if not (math.isfinite(number) and low <= number <= high):
        raise ValueError(f"{name} is {value!r}; it must be finite and lie in [{low:.10g}, {high:.10g}]")
    return number
