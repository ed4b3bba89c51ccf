"""What a page says, read from its HTML."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from served import Asking

HTML: Final = {"Accept": "text/html"}


class Main(HTMLParser):
    """The tags and the words of the main part of a page.

    Attributes:
        tags: those of its elements.
        links: by its text, where each link leads.
    """

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.links: dict[str, str] = {}
        self._texts: list[str] = []
        self._link: tuple[str, int] | None = None
        self.feed(page.partition("<main")[2].partition("</main>")[0])

    @property
    def text(self) -> str:
        """All words, with a space where the page has any."""
        return " ".join("".join(self._texts).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self._texts.append(" ")
        if tag == "a":
            self._link = str(dict(attrs)["href"]), len(self._texts)

    def handle_endtag(self, tag: str) -> None:
        if tag == "a" and self._link is not None:
            href, begin = self._link
            self.links["".join(self._texts[begin:]).strip()] = href
        self._texts.append(" ")

    def handle_data(self, data: str) -> None:
        self._texts.append(data)


def main_of(collector: Asking, path: str) -> Main:
    """The main part of a page that is there."""
    reply = collector.get(path, HTML)
    assert reply.status == 200, reply.body[:300]
    return Main(reply.body.decode())
