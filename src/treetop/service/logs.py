"""The service's own log lines: one JSON object a line on stderr, with time, level and event. Never a secret."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any

from treetop.service.secret_files import password_of

LOGGER = logging.getLogger("treetop.service")
SHORTEST_SECRET = 4  # characters: hiding fewer would only make the lines unreadable
_secrets: set[str] = set()


def hide(address: str) -> None:
    """Keeps a log's address and its password out of all lines."""
    for secret in (address, password_of(address) or ""):
        if len(secret) >= SHORTEST_SECRET:
            _secrets.add(json.dumps(secret)[1:-1])


class JsonFormatter(logging.Formatter):
    """A log record as JSON; an error's stack is one field of it."""

    def format(self, record: logging.LogRecord) -> str:
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        fields: dict[str, Any] = {
            "time": f"{seconds}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "pid": record.process,
            "event": record.getMessage(),
            **getattr(record, "facts", {}),
        }
        if record.exc_info:
            fields["stack"] = self.formatException(record.exc_info)
        line = json.dumps(fields, default=str)
        for secret in _secrets:
            line = line.replace(secret, "[hidden]")
        return line


def set_up() -> None:
    """Sends the lines of this process, including the web server's, to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    for name, level in (("treetop.service", logging.INFO), ("uvicorn.error", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)


def log_event(event: str, level: int = logging.INFO, **facts: Any) -> None:
    """Writes a line."""
    LOGGER.log(level, event, extra={"facts": facts})


def log_error(event: str, **facts: Any) -> None:
    """Writes a line for an exception that is being handled, with its stack, which no answer to a request has."""
    LOGGER.error(event, exc_info=True, extra={"facts": facts})
