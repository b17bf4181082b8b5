"""Runs the notebooks of examples/ and stores what they print and draw in them.

    .venv/bin/python scripts/run_notebooks.py            # in place
    .venv/bin/python scripts/run_notebooks.py --out DIR  # executed copies in DIR; examples/ stays as it is

Each runs in a folder of its own that is deleted afterwards. Ends with an error if a cell fails.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[1] / "examples"
CELL_TIMEOUT = 300  # seconds, on a busy machine


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--out", type=Path, default=EXAMPLES)
    folder: Path = asked.parse_args().out
    with tempfile.TemporaryDirectory() as private:  # Jupyter writes nothing into the home of whoever runs this
        for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR"):
            os.environ[name] = f"{private}/{name.lower()}"
        for path in sorted(EXAMPLES.glob("*.ipynb")):
            execute(path, folder / path.name)
            print(folder / path.name, flush=True)


def execute(path: Path, target: Path) -> None:
    """Runs one notebook and writes it with its outputs; nothing in it says when or where that was."""
    import nbformat
    from nbclient import NotebookClient

    notebook: Any = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as work:
        NotebookClient(notebook, timeout=CELL_TIMEOUT, resources={"metadata": {"path": work}}).execute()
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for cell in notebook.cells:
        cell.metadata = {}
    nbformat.write(notebook, target)


if __name__ == "__main__":
    main()
