"""Log lines for machines: one JSON object a line on stderr, with a time, a level and an event. Never a secret."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any

LOGGER = logging.getLogger("treetop.service")
_hidden: set[str] = set()


def hide(secret: str) -> None:
    """A text that no line may hold, such as the address of a database with its password."""
    _hidden.add(json.dumps(secret)[1:-1])


class Lines(logging.Formatter):
    """A record as JSON; the stack of an error is one field of it."""

    def format(self, record: logging.LogRecord) -> str:
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        said: dict[str, Any] = {
            "time": f"{seconds}.{int(record.msecs):03d}Z", "level": record.levelname.lower(), "pid": record.process,
            "event": record.getMessage(), **getattr(record, "facts", {}),
        }  # fmt: skip
        if record.exc_info:
            said["stack"] = self.formatException(record.exc_info)
        line = json.dumps(said, default=str)
        for secret in _hidden:
            line = line.replace(secret, "[hidden]")
        return line


def set_up() -> None:
    """Sends the lines of this process, the web server's among them, to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Lines())
    for name, level in (("treetop.service", logging.INFO), ("uvicorn.error", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)


def say(event: str, level: int = logging.INFO, **facts: Any) -> None:
    LOGGER.log(level, event, extra={"facts": facts})


def say_error(event: str, **facts: Any) -> None:
    """For the errors that are ours: with the stack, which no answer ever has."""
    LOGGER.error(event, exc_info=True, extra={"facts": facts})
