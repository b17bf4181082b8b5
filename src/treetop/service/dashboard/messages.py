"""What a worker and the dashboard's process say to each other, over a connection of this machine.

The process writes its port and a secret into a file that only the service's user can read; a worker sends the secret
with every request.
"""

from __future__ import annotations

import asyncio
from typing import TypeVar

import msgspec
from msgspec import Struct

LOCK = ".dashboard.lock"  # held by the process; its content is an Address
LARGEST = 16 << 20  # bytes of a message
T = TypeVar("T")


class Address(Struct):
    """Where the process listens."""

    port: int
    secret: str


class ServiceState(Struct):
    """What a worker knows and the log does not: the model that serves, and how refits stand."""

    folder: str
    model: str
    n_seen: int
    trouble: str
    pinned: bool
    refit_from: int  # rounds that had ever been observed at the last refit or rollback
    refit_due: int  # new ones at which the next refit is due
    refit_running: bool
    refit_failures: int  # in a row
    refit_error: str
    tokens: bool  # whether visitors have logged in
    refit_aside: str = ""  # why the gate did not let the last refit serve
    defined: list[str] = []  # experiments of config.toml
    reward_wait: float = 0.0  # seconds until a visit without a reward counts


class Ask(Struct):
    """A request for a page or a part of it, by a visitor whose token was checked."""

    secret: str
    part: str
    query: dict[str, str]
    admin: bool
    service: ServiceState


class Answer(Struct):
    status: int
    html: str


async def send(writer: asyncio.StreamWriter, message: Struct) -> None:
    content = msgspec.msgpack.encode(message)
    writer.write(len(content).to_bytes(4, "big") + content)
    await writer.drain()


async def receive(reader: asyncio.StreamReader, kind: type[T]) -> T:
    """The next message. Raises EOFError or ValueError if there is none of this kind."""
    size = int.from_bytes(await reader.readexactly(4), "big")
    if size > LARGEST:
        raise ValueError(f"a message has {size} bytes; at most {LARGEST} are possible")
    return msgspec.msgpack.decode(await reader.readexactly(size), type=kind)
