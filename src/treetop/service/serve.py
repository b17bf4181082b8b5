"""`treetop serve`: checks the settings, opens the socket and hands it to the supervisor of the workers."""

from __future__ import annotations

import errno
import os
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from treetop.arrays import check_int
from treetop.bandit.config_file import CONFIG, read_config
from treetop.bandit.folder import LOG, BanditFolder
from treetop.bandit.ownership import claim_log
from treetop.bandit.replica import shared_folder
from treetop.log.open import open_log
from treetop.service import logs, supervisor
from treetop.service.refit_scheduler import LOG_VARIABLE
from treetop.service.supervisor import Supervisor
from treetop.service.tokens import Tokens, check_listening, is_loopback

BIND_TIMEOUT = 5.0  # seconds for a service that is ending to release the port


def serve(
    folder: Path,
    host: str = "127.0.0.1",
    port: int = 8700,
    workers: int = 1,
    log: str | None = None,
    tokens: Path | None = None,
    on_listening: Callable[[str], None] | None = None,
) -> None:
    """Serves a bandit's folder until SIGTERM or SIGINT.

    `port` 0 takes a free one. `log` is the log's address, if it is not in the folder; `tokens` a file of tokens.
    `on_listening` is called with the URL before the first request is answered. Raises OSError if it cannot start.
    """
    with start(folder, host, port, workers, log, tokens) as listening:
        if on_listening is not None:
            on_listening(url_of(listening))
        if Supervisor(str(folder), listening, workers).run() != 0:
            raise OSError("the service ended with an error; its log says why")


def become_service(
    folder: Path, host: str, port: int, workers: int, log: str | None = None, tokens: Path | None = None
) -> NoReturn:
    """As `serve`, but this process turns into the supervisor, without the memory that `treetop` itself takes."""
    listening = start(folder, host, port, workers, log, tokens)
    os.set_inheritable(listening.fileno(), True)
    arguments = map(str, (folder, listening.fileno(), workers))
    command = [sys.executable, "-I", "-S", supervisor.__file__, *arguments]
    os.execv(sys.executable, command)


def start(
    folder: Path, host: str, port: int, workers: int, log: str | None = None, tokens: Path | None = None
) -> socket.socket:
    """Checks everything that can be checked before the first request, and listens. Workers find what they need in the
    environment, never in their arguments, which everyone on the machine can read."""
    check_int("workers", workers, 1, 256)
    check_int("port", port, 0, 65_535)
    check_listening(host, Tokens.read(os.environ, tokens))
    BanditFolder(folder).state()
    config = read_config(folder / CONFIG)
    logs.set_up()
    if where := log or os.environ.get(LOG_VARIABLE):
        logs.hide(where)
    with open_log(where or folder / LOG) as opened:  # a wrong password or another bandit's log ends the start here
        claim_log(shared_folder(BanditFolder(folder), config, opened), opened)
    if tokens is not None:
        os.environ["TREETOP_TOKENS_FILE"] = str(tokens.resolve())
    if log is not None:
        os.environ[LOG_VARIABLE] = log
    listening = listening_on(host, port)
    logs.log_event("listening", url=url_of(listening), workers=workers, local=is_loopback(host))
    return listening


def url_of(listening: socket.socket) -> str:
    address, port = listening.getsockname()[:2]
    return f"http://{_bracketed(address)}:{port}"


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def listening_on(host: str, port: int) -> socket.socket:
    """A listening socket. Waits a little for a service that is ending to release the port; then raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    until = time.monotonic() + BIND_TIMEOUT
    while True:
        made = socket.socket(family, socket.SOCK_STREAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            made.bind((host.strip("[]"), port))
            made.listen(2048)
        except OSError as error:
            made.close()
            if time.monotonic() > until:
                hint = "; --port takes another" if error.errno == errno.EADDRINUSE else ""
                raise OSError(f"cannot listen on {host}:{port}: {error.strerror or error}{hint}") from None
            time.sleep(0.1)
        else:
            made.setblocking(False)
            return made
