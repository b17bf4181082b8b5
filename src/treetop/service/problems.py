"""What can be wrong with a request, as a status, a code and a sentence. Turns errors into answers."""

from __future__ import annotations

from typing import Any

import msgspec

from treetop.answers import Differs, NotShown, UnknownEvent
from treetop.catalogue import UnknownArm, UnknownFeature
from treetop.files import InUse
from treetop.live import NoArms
from treetop.log import Conflict, LogError
from treetop.next_model import NothingToLearn
from treetop.service.wire import Error, Failure

Headers = list[tuple[bytes, bytes]]


class Problem(Exception):
    """An answer that is not what was asked for."""

    def __init__(
        self, status: int, code: str, message: str, headers: Headers | None = None, stored: Any = None
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.headers, self.stored = status, code, message, headers or [], stored

    def error(self) -> Error:
        return Error(self.code, self.message, msgspec.UNSET if self.stored is None else self.stored)

    def body(self) -> bytes:
        return msgspec.json.encode(Failure(self.error()))


def later(status: int, code: str, message: str, seconds: int = 1) -> Problem:
    """A problem that may be gone in a moment."""
    return Problem(status, code, message, [(b"retry-after", str(seconds).encode())])


CODES: dict[type[Exception], tuple[int, str]] = {
    UnknownEvent: (404, "unknown_event"),
    NotShown: (422, "not_shown"),
    UnknownArm: (422, "unknown_arm"),
    UnknownFeature: (422, "unknown_feature"),
    NoArms: (422, "no_arms"),
    NothingToLearn: (409, "nothing_to_learn"),
    InUse: (409, "busy"),
}


def as_problem(error: Exception) -> Problem | None:
    """What an error of the library means for whoever asked; None if it is not theirs but ours."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, Conflict):
        return Problem(409, "event_conflict", str(error))
    if isinstance(error, Differs):
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
        return Problem(422, "invalid", str(error))
    if isinstance(error, msgspec.DecodeError | UnicodeDecodeError):
        return Problem(400, "malformed", f"the body is not JSON: {error}")
    if isinstance(error, ValueError | TypeError):
        return Problem(422, "invalid", str(error))
    return None


def problem_of(error: Exception) -> Problem:
    """The same where the error must be theirs; ours are raised on."""
    problem = as_problem(error)
    if problem is None:
        raise error
    return problem
