"""For the reference pages: what docstrings and fields say, as Markdown that the site can show."""

from __future__ import annotations

import re
from typing import Any

from griffe import Attribute, Docstring, Extension, Object

SESSION = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)
REMARK = re.compile(r"  # (?!type: |noqa)(.+)$")


class DocstringPages(Extension):
    """Examples (`>>>` until an empty line) become blocks of code: Markdown would take them for quotations.

    The remark behind a field of a class becomes its docstring.
    """

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            text = SESSION.sub(lambda found: f"```pycon\n{found[0]}\n```", obj.docstring.value)
            obj.docstring = Docstring(text, parent=obj, lineno=obj.docstring.lineno)

    def on_attribute(self, *, attr: Attribute, **kwargs: Any) -> None:
        is_field = attr.parent is not None and attr.parent.is_class and attr.annotation is not None
        if is_field and attr.docstring is None and attr.lines and (remark := REMARK.search(attr.lines[-1])):
            attr.docstring = Docstring(remark[1][:1].upper() + remark[1][1:] + ".", parent=attr)
