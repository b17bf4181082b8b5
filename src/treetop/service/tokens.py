"""Tokens with scopes, compared in constant time. Keeps digests, never the tokens themselves."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import ipaddress
import logging
import math
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from treetop.service import logs
from treetop.service.secret_files import read_secret_file

SCOPES = ("read", "write", "admin")
MIN_LENGTH = 16  # characters of a token
FREE_GUESSES = 20  # wrong tokens from an address before it is told to wait
GUESS_SECONDS = 10  # until an address is forgiven one
MOST_GUESSES = 60  # that an address has to be forgiven at most
ADDRESSES = 4096  # that are remembered


@dataclass(frozen=True)
class Tokens:
    """(digest, scopes) of every token. Without any token, everyone on this machine may do everything."""

    known: tuple[tuple[bytes, frozenset[str]], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.known)

    def scopes(self, header: bytes) -> frozenset[str] | None:
        """The scopes of an Authorization header; None if its token is unknown. Always compares with every token."""
        given, found = _digest(_secret(header)), None
        for digest, scopes in self.known:
            if hmac.compare_digest(digest, given):
                found = scopes
        return found

    def session(self, token: str, until: int) -> str:
        """The cookie that a browser keeps instead of a token: valid until a time, and only while the token is valid."""
        return f"{until}.{_signature(_digest(token.encode()), until)}"

    def in_session(self, session: str, now: float) -> frozenset[str] | None:
        """The scopes of a session cookie; None if it has expired or is not signed with a known token."""
        until, _, given = session.partition(".")
        if not (until.isascii() and until.isdigit() and len(until) < 20 and given.isascii()) or int(until) <= now:
            return None
        found = None
        for digest, scopes in self.known:
            if hmac.compare_digest(_signature(digest, int(until)), given):
                found = scopes
        return found

    @classmethod
    def read(cls, environment: Mapping[str, str], file: Path | None = None) -> Tokens:
        """TREETOP_TOKEN is one token for everything. A file (TREETOP_TOKENS_FILE, or the one named) has a line for
        each: scopes with commas between them, a space, the token. Lines that begin with # are remarks. Nobody but its
        owner may read the file."""
        known = []
        if single := environment.get("TREETOP_TOKEN", ""):
            known.append((_digest(_long_enough(single, "TREETOP_TOKEN").encode()), frozenset(SCOPES)))
        named = file or (Path(path) if (path := environment.get("TREETOP_TOKENS_FILE")) else None)
        for number, line in enumerate(read_secret_file(named).splitlines() if named else [], 1):
            if line.strip() and not line.startswith("#"):
                known.append(_parsed(line, f"{named} line {number}"))
        if named and not known:
            raise ValueError(f"{named} has no token in it, so that everyone on this machine could do everything")
        return cls(tuple(known))


class Guesses:
    """Wrong tokens by the address that they came from. Each address has some of them free, and more as time goes by.

    An address that has used them up waits, and meanwhile nothing that it sends is compared with the tokens, so that it
    learns nothing. Only what has been right from there before is still answered: the address may be a proxy's.

    >>> guesses = Guesses()
    >>> [guesses.wrong("10.0.0.1", now=0.0) for _ in range(FREE_GUESSES + 2)][-3:]
    [0, 10, 20]
    >>> guesses.wrong("10.0.0.1", now=20.0), guesses.wrong("10.0.0.2", now=20.0)
    (10, 0)
    >>> guesses.right("10.0.0.1", b"Bearer of-the-shop")
    >>> guesses.must_wait("10.0.0.1", b"Bearer of-the-shop", 20.0), guesses.must_wait("10.0.0.1", b"Bearer x", 20.0)
    (False, True)
    """

    def __init__(self) -> None:
        self._addresses: OrderedDict[str, tuple[float, float]] = OrderedDict()  # wrong tokens, and when the last came
        self._right: set[int] = set()  # hashes of addresses with what was right from there

    def right(self, address: str, credentials: bytes) -> None:
        """Notes what was right."""
        if len(self._right) >= ADDRESSES:
            self._right.clear()
        self._right.add(hash((address, credentials)))

    def must_wait(self, address: str, credentials: bytes, now: float) -> bool:
        """Whether these credentials are not to be looked at now."""
        if address not in self._addresses or hash((address, credentials)) in self._right:
            return False
        count, last = self._addresses[address]
        return count - (now - last) / GUESS_SECONDS > FREE_GUESSES

    def wrong(self, address: str, now: float) -> int:
        """Notes a wrong token; returns the seconds until the next one is free, or 0 if this one was."""
        count, last = self._addresses.pop(address, (0.0, now))
        before = max(0.0, count - (now - last) / GUESS_SECONDS)
        count = min(FREE_GUESSES + MOST_GUESSES, before + 1)
        self._addresses[address] = count, now
        if len(self._addresses) > ADDRESSES:
            self._addresses.popitem(last=False)
        if before <= FREE_GUESSES < count:
            logs.log_event("tokens are being guessed", logging.WARNING, address=address)
        return math.ceil((count - FREE_GUESSES) * GUESS_SECONDS) if count > FREE_GUESSES else 0


def _parsed(line: str, where: str) -> tuple[bytes, frozenset[str]]:
    parts = line.split()
    if len(parts) != 2:
        raise ValueError(f"{where}: not of the form 'read,write TOKEN'")
    scopes = parts[0].split(",")
    if wrong := next((scope for scope in scopes if scope not in SCOPES), None):
        raise ValueError(f"{where}: there is no scope {wrong!r}; the scopes are {', '.join(SCOPES)}")
    return _digest(_long_enough(parts[1], where).encode()), frozenset(scopes)


def _long_enough(token: str, where: str) -> str:
    if len(token) < MIN_LENGTH:
        raise ValueError(f"{where}: the token has {len(token)} characters; at least {MIN_LENGTH} are needed")
    return token


def _digest(secret: bytes) -> bytes:
    return hashlib.sha256(secret).digest()


def _signature(digest: bytes, until: int) -> str:
    """The signature of a session, made with its own token; it tells nothing about the other tokens."""
    return hmac.new(digest, b"treetop session until %d" % until, hashlib.sha256).hexdigest()


def _secret(header: bytes) -> bytes:
    """The token of `Bearer TOKEN`, or of `Basic` with the token as its password, which is what a browser asks for."""
    kind, _, rest = header.partition(b" ")
    if kind.lower() == b"bearer":
        return rest.strip()
    if kind.lower() == b"basic":
        try:
            return base64.b64decode(rest.strip(), validate=True).partition(b":")[2]
        except (binascii.Error, ValueError):
            return b""
    return b""


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_listening(host: str, tokens: Tokens) -> None:
    if not is_loopback(host) and not tokens:
        raise ValueError(
            f"listening on {host} needs a token: set TREETOP_TOKEN, or name a file of tokens with --tokens; "
            f"without one only this machine may ask (127.0.0.1)"
        )


@lru_cache(256)
def is_local_name(host_header: bytes) -> bool:
    """Whether a Host header names this machine. It does not for a page of another site whose name resolves to it."""
    host = host_header.decode("latin-1").lower()
    name = host if host.endswith("]") else host.rpartition(":")[0] or host
    return name == "" or is_loopback(name)
