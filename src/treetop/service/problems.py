"""Turns exceptions into HTTP answers: a status, a code for programs and a sentence for people."""

from __future__ import annotations

import re

import msgspec

from treetop.errors import (
    ArmNotShown,
    EventConflict,
    FeatureOutlier,
    FolderInUse,
    ForeignLog,
    LogError,
    ModelPinned,
    NoEligibleArm,
    NothingToLearn,
    Problem,
    RewardConflict,
    UnknownArm,
    UnknownEvent,
    UnknownFeature,
)
from treetop.service.schema import IN_WORDS, Error, Failure

Headers = list[tuple[bytes, bytes]]
PLACE = re.compile(r"(.+) - at `\$\.?([^`]+)`")  # where msgspec found what it says


def error_of(problem: Problem) -> Error:
    return Error(problem.code, problem.message, msgspec.UNSET if problem.stored is None else problem.stored)


def body_of(problem: Problem) -> bytes:
    return msgspec.json.encode(Failure(error_of(problem)))


def later(status: int, code: str, message: str, seconds: int = 1) -> Problem:
    """A problem that may soon be over, with a Retry-After header."""
    return Problem(status, code, message, [(b"retry-after", str(seconds).encode())])


CODES: dict[type[Exception], tuple[int, str]] = {
    UnknownEvent: (404, "unknown_event"),
    ArmNotShown: (422, "not_shown"),
    UnknownArm: (422, "unknown_arm"),
    UnknownFeature: (422, "unknown_feature"),
    NoEligibleArm: (422, "no_arms"),
    FeatureOutlier: (422, "outlier"),
    NothingToLearn: (409, "nothing_to_learn"),
    FolderInUse: (409, "busy"),
    ForeignLog: (409, "foreign_log"),
    ModelPinned: (409, "pinned"),
}


def as_problem(error: Exception) -> Problem | None:
    """The problem to answer an exception with; None if it is an internal error of the service."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, EventConflict):
        return Problem(409, "event_conflict", str(error))
    if isinstance(error, RewardConflict):
        return Problem(409, "reward_conflict", str(error), stored=error.stored)
    if isinstance(error, LogError):
        return later(
            503, "log_unavailable", "the log cannot be written or read at the moment; sending this again is safe"
        )
    for kind, (status, code) in CODES.items():
        if isinstance(error, kind):
            return Problem(status, code, str(error))
    if isinstance(error, OSError):
        why = error.strerror or type(error).__name__
        return later(503, "folder_unavailable", f"the bandit's folder cannot be read or written at the moment: {why}")
    if isinstance(error, msgspec.ValidationError):
        return Problem(422, "invalid", _in_words(str(error)))
    if isinstance(error, msgspec.DecodeError | UnicodeDecodeError):
        return Problem(400, "malformed", f"the body is not JSON: {error}")
    if isinstance(error, ValueError | TypeError):
        return Problem(422, "invalid", str(error))
    return None


def _in_words(message: str) -> str:
    """A message of msgspec that begins with the field's name, without the regular expressions of the schema.

    >>> _in_words("Expected `int` >= 1 - at `$.k`")
    'k: expected `int` >= 1'
    """
    if found := PLACE.fullmatch(message):
        message = f"{found[2]}: {found[1][0].lower()}{found[1][1:]}"
    for pattern, words in IN_WORDS.items():
        message = message.replace(f"`str` matching regex {pattern!r}", words)
    return message


def problem_of(error: Exception) -> Problem:
    """The problem to answer an exception with; an internal error is raised again."""
    problem = as_problem(error)
    if problem is None:
        raise error
    return problem
