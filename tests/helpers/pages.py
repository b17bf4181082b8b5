"""A parser that checks a page: tags closed in order, nothing that points outside."""

import base64
import re
from html.parser import HTMLParser

VOID = {"wbr", "meta", "img", "source", "br", "link", "input", "hr"}


class Page(HTMLParser):
    """Checks that tags are closed in order, and keeps what could point outside."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.tags: set[str] = set()
        self.words: list[str] = []
        self.feed(text)
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag not in VOID:
            self.open.append(tag)
        values = dict(attrs)
        self.ids.update(filter(None, [values.get("id")]))
        self.links += [v for name in ("src", "href", "srcset", "action", "data", "poster") if (v := values.get(name))]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def self_contained(text: str) -> Page:
    page = Page(text)
    for link in page.links:
        assert link.startswith(("#", "data:image/svg+xml;base64,")), link[:80]
        if link.startswith("#"):
            assert link[1:] in page.ids
        else:
            assert base64.b64decode(link.split(",", 1)[1]).lstrip().startswith(b"<?xml")
    assert not page.tags & {"script", "link", "iframe", "object", "embed"}
    assert not re.search(r"https?://|url\(|@import", text)
    return page
