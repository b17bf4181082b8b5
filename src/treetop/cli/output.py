"""Where commands print, and the files that they leave behind."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

console, errors = Console(), Console(stderr=True)


def draw(picture: Callable[[Path], None], path: Path) -> str | None:
    """The path of the picture; None without matplotlib."""
    try:
        picture(path)
    except ModuleNotFoundError:
        return None
    return str(path)


def store(result: dict[str, Any], path: Path) -> None:
    """The result as a file of JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")
