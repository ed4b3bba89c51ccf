"""The forms of the page as a browser sends them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from read_pages import HTML

if TYPE_CHECKING:
    from served import Asking, Reply

FORM: Final = {"Content-Type": "application/x-www-form-urlencoded"}


def token_in(reply: Reply) -> str:
    found = re.search(r'name="csrf" value="(\w+)"', reply.body.decode())
    assert found is not None
    return found[1]


def send(
    collector: Asking,
    path: str,
    cookie: str = "",
    headers: dict[str, str] | None = None,
    **form: str,
) -> Reply:
    """Send a form."""
    sent = FORM | HTML | {"Origin": collector.url, "Cookie": cookie} | (headers or {})
    return collector.ask("POST", path, urlencode(form), sent)


def sign_in(collector: Asking, key: str, to: str = "/") -> Reply:
    token = token_in(collector.get("/sign-in", HTML))
    return send(collector, "/sign-in", csrf=token, key=key, next=to)


def cookie_of(reply: Reply) -> str:
    return reply.headers["set-cookie"].partition(";")[0]
