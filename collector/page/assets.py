"""The stylesheet and the script of the page, behind addresses that change with their content."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..http import Answer, Problem

if TYPE_CHECKING:
    from ..http import Request

STATIC_PATH: Final = "/static/{name}"
FOLDER: Final = Path(__file__).parent / "static"

_MEDIA: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_HEADERS: Final = (
    ("cache-control", "public, max-age=31536000, immutable"),
    ("content-security-policy", "default-src 'none'; style-src 'unsafe-inline'"),
    ("x-content-type-options", "nosniff"),
)
_DIGITS: Final = 12


def asset_url(name: str) -> str:
    """The address of a file of the page: it has the beginning of the content's hash."""
    return {file.name: url for url, file in _files().items()}[name]


async def static(request: Request) -> Answer:
    """A file of the page. Browsers keep it: another content has another address."""
    file = _files().get(request.own_path)
    if file is None:
        raise Problem(HTTPStatus.NOT_FOUND, "the page has no such file; load the page again")
    headers = [("content-type", _MEDIA[file.suffix]), *_HEADERS]
    return Answer(HTTPStatus.OK, headers, file.read_bytes())


@cache
def _files() -> dict[str, Path]:
    """The files by their addresses."""
    found = {}
    for file in sorted(FOLDER.iterdir()):
        digits = sha256(file.read_bytes()).hexdigest()[:_DIGITS]
        found[STATIC_PATH.format(name=f"{file.stem}.{digits}{file.suffix}")] = file
    return found
