"""Secrets that come in files, and the password in a log's address."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit


def read_secret_file(path: Path) -> str:
    """The text of a file. Raises ValueError if others than its owner may read it.

    Of a file that belongs to root, the group may read it too: so it is given to a service that runs as somebody else.
    """
    with path.open(encoding="utf-8") as file:
        facts = os.fstat(file.fileno())
        mode = stat.S_IMODE(facts.st_mode)
        allowed = 0o640 if facts.st_uid == 0 and os.geteuid() != 0 else 0o600
        if mode & 0o077 & ~allowed:
            raise ValueError(
                f"{path} holds secrets and others may read or change it (its mode is {mode:04o}): chmod 600 {path}"
            )
        return file.read()


def read_address(path: Path) -> str:
    """The log's address in a file: its only line, remarks (#) and empty lines aside."""
    lines = [line.strip() for line in read_secret_file(path).splitlines()]
    found = [line for line in lines if line and not line.startswith("#")]
    if len(found) != 1:
        raise ValueError(f"{path} has {len(found)} lines; the address of one log is needed")
    return found[0]


def password_of(address: str) -> str | None:
    """The password in an address.

    >>> password_of("postgresql://shop:s%40cret@db/shop"), password_of("postgresql://db/shop?password=x")
    ('s@cret', 'x')
    >>> password_of("postgresql://shop@db/shop"), password_of("shop/log.sqlite")
    (None, None)
    """
    try:
        parts = urlsplit(address)
        given = parts.password
    except ValueError:
        return None
    if given is None:
        return parse_qs(parts.query).get("password", [None])[0]
    return unquote(given)
