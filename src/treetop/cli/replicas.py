"""The command join: parse, call, print."""

from __future__ import annotations

import json
import time
from typing import Annotated

import typer

from treetop.bandit.folder import BanditFolder
from treetop.bandit.replica import join
from treetop.cli.folder import Folder
from treetop.cli.options import Json
from treetop.cli.output import console


def join_(
    folder: Folder,
    store: Annotated[str, typer.Argument(help="replicas.store of the others: a folder, or s3://bucket/shop.")],
    log: Annotated[str, typer.Option("--log", envvar="TREETOP_LOG", help="Their log: postgresql://...")],
    as_json: Json = False,
) -> None:
    """Makes the folder of a new replica of a bandit, from what the others serve. Then serve it with the same --log.

    Example: treetop join shop /mnt/shop --log postgresql://db/shop
    """
    start = time.perf_counter()
    state = join(folder, store, log)
    arms = len(BanditFolder(folder).arm_index(state))
    facts = {"folder": str(folder), "bandit": state.bandit, "model": state.model, "arms": arms}
    if as_json:
        print(json.dumps({**facts, "seconds": round(time.perf_counter() - start, 2)}))
        return
    words = f"{folder}: model {state.model}, {arms:,} arms. Serve it: treetop serve {folder} --log ..."
    console.print(words, highlight=False)
