"""One tree of exceptions: everything that treetop raises on purpose, beside ValueError and TypeError for bad arguments.

    TreetopError
      ModelFileError, SegmentError, LogError, ForeignLog, FolderInUse, ReplicaConflict: files, databases and folders
      UnknownArm, UnknownFeature, UnknownEvent            names that nothing stands for
      ArmNotShown, NoEligibleArm, FeatureOutlier          requests that cannot be met
      EventConflict, RewardConflict                       something else is stored under that id
      NothingToLearn, InvalidModel, ModelSuperseded, ModelPinned: why a refit published nothing
      ShardError, ClusterError                            work on many machines that did not end, or did not begin
      ServiceError, ServiceUnreachable                    what a client of the service meets
      Problem, ClientGone                                 inside the service: an answer that is not 200, a closed door
      BenchError: PeerError, Disagreement, ChildError, RequestRefused

Most are also the built-in kind that fits (ValueError, OSError, ...), so that callers who know nothing of treetop can
catch them. Knows no other module.
"""

from __future__ import annotations

from typing import Any


class TreetopError(Exception):
    """The root of the tree."""


class ModelFileError(TreetopError, ValueError):
    """A saved model or set of samples that cannot be trusted: truncated, corrupt, foreign, or of another version.

    >>> raise ModelFileError("no/such/model: no manifest.json")
    Traceback (most recent call last):
    treetop.errors.ModelFileError: no/such/model: no manifest.json
    """


class SegmentError(TreetopError, ValueError):
    """Sealed segments that cannot be trusted: truncated, corrupt, or of another version. The log has all they held."""


class LogError(TreetopError, OSError):
    """The log could not be read or written: no answer means nothing; sending the same ids again is safe."""


class ForeignLog(TreetopError, ValueError):
    """A log, or a file exported from one, that belongs to another bandit or does not fit the folder's catalogue."""


class FolderInUse(TreetopError, ValueError):
    """Another process, or another part of this one, holds the lock."""


class ReplicaConflict(FolderInUse):
    """Another replica changed the bandit at the same moment: nothing has changed here, try again."""


class UnknownArm(TreetopError, ValueError):
    """An id that is not in the catalogue."""


class UnknownFeature(TreetopError, ValueError):
    """A feature that is not in the vocabulary, where those are refused."""


class FeatureOutlier(TreetopError, ValueError):
    """A value far outside what its feature has shown, where those are refused."""


class UnknownEvent(TreetopError, ValueError):
    """There is no such event in the log."""


class ArmNotShown(TreetopError, ValueError):
    """A reward for an arm that the event did not show."""


class NoEligibleArm(TreetopError, ValueError):
    """Nothing is left that could be shown."""


class EventConflict(TreetopError, ValueError):
    """The id is in the log with another request; `stored` is the decision that it belongs to."""

    def __init__(self, stored: Any) -> None:
        super().__init__(f"event {stored.event_id!r} was decided for another request")
        self.stored = stored


class RewardConflict(TreetopError, ValueError):
    """Another reward is already known; `stored` has the values in the log, by arm."""

    def __init__(self, message: str, stored: dict[str, float]) -> None:
        super().__init__(message)
        self.stored = stored


class NothingToLearn(TreetopError, ValueError):
    """There is no decision in the log yet."""


class InvalidModel(TreetopError, ValueError):
    """A model that must not serve."""


class ModelSuperseded(TreetopError, ValueError):
    """The model that a new one was made from is not the current one any more."""


class ModelPinned(ModelSuperseded):
    """The current model is pinned: no refit replaces it."""


class ShardError(TreetopError, RuntimeError):
    """A task of `map_shards` failed as often as it may; `details` is where, as the worker printed it."""

    def __init__(self, message: str, details: str = "") -> None:
        super().__init__(message)
        self.details = details


class ClusterError(TreetopError, ConnectionError):
    """There is no Ray, or no cluster at that address."""


class ServiceError(TreetopError):
    """The service said no: `status`, `code` and a sentence; `stored` where it told what it holds instead.

    >>> str(ServiceError(404, "unknown_event", "there is no event 'nobody' in the log"))
    "there is no event 'nobody' in the log (404 unknown_event)"
    """

    def __init__(self, status: int, code: str, message: str, stored: Any = None, wait: float = 0.0) -> None:
        super().__init__(f"{message} ({status} {code})")
        self.status, self.code, self.stored = status, code, stored
        self.wait = wait  # seconds, as the service asked


class ServiceUnreachable(TreetopError, ConnectionError):
    """No answer, however often it was tried."""


class Problem(TreetopError):
    """An HTTP answer that is not what was asked for; `stored` is what the service holds instead."""

    def __init__(
        self, status: int, code: str, message: str, headers: list[tuple[bytes, bytes]] | None = None, stored: Any = None
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.headers, self.stored = status, code, message, headers or [], stored


class ClientGone(TreetopError):
    """Whoever asked has hung up."""


class BenchError(TreetopError, ValueError):
    """A benchmark that has no result."""


class PeerError(BenchError):
    """A peer that is there and does not work."""


class Disagreement(BenchError):
    """What was timed does not compute what it should."""


class ChildError(BenchError):
    """A measurement that ended before it was over."""


class RequestRefused(BenchError, OSError):
    """An answer that is not 200, or none at all."""
