"""For the reference pages: examples in docstrings (`>>>` until an empty line) become code blocks."""

from __future__ import annotations

import re
from typing import Any

from griffe import Docstring, Extension, Object

SESSION = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)


class DoctestBlocks(Extension):
    """Puts fences around the examples of every docstring; without them Markdown takes `>>>` for a quotation."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            text = SESSION.sub(lambda found: f"```pycon\n{found[0]}\n```", obj.docstring.value)
            obj.docstring = Docstring(text, parent=obj, lineno=obj.docstring.lineno)
