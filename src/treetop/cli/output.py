"""Where commands print, and the files that they leave behind."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

console, errors = Console(), Console(stderr=True)
PICTURES = (".png", ".svg", ".pdf", ".jpg", ".jpeg", ".webp", ".eps", ".ps", ".tif", ".tiff")


def is_shown(quiet: bool) -> bool:
    """Whether progress is shown: on a terminal, to people."""
    return errors.is_terminal and not quiet


def check_picture(option: str, path: Path) -> None:
    """Whether a picture can be drawn there, before anything is done that takes long."""
    if path.suffix.lower() not in PICTURES:
        raise ValueError(f"{option} is {str(path)!r}; its name must end with one of {', '.join(PICTURES)}")
    if not path.parent.is_dir():
        raise ValueError(f"{option} is {str(path)!r}; there is no folder {str(path.parent)!r}")
    if path.is_dir():
        raise ValueError(f"{option} is {str(path)!r}, which is a folder")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ValueError(f"{option} is {str(path)!r}, which cannot be written")
    try:
        import matplotlib.figure  # noqa: F401
    except ModuleNotFoundError:
        raise ValueError(f"{option} needs matplotlib: pip install 'treetop-bandits[plot]'") from None


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
