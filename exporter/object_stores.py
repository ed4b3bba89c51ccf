"""Object stores, opened by URL: S3 and compatible stores, Google Cloud Storage and Azure."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from waybill.transport import MissingExtraError, NotFoundError, WaybillError

if TYPE_CHECKING:
    from obstore.store import ObjectStore

TIMEOUT_S: Final = 120.0
"""The timeout of a request to an object store."""

_RETRIES: Final = 8
_SCHEMES: Final = frozenset({"s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "adl"})
_FILE: Final = "file:"
"""Java writes one slash after it, others write three."""

_NEARLY_URL: Final = re.compile(rf"({'|'.join(sorted(_SCHEMES))}|https?)(:/?|//)(?!/)")

_FORMS: Final = "give s3://bucket/folder, gs://…, az://… or the path of a folder"


class StoreError(WaybillError):
    """An object store cannot be opened. The message says what to do."""


def is_url(where: str) -> bool:
    """Whether a place is given by a URL: of an object store, or of a folder."""
    return "://" in where or where.startswith(_FILE)


def local_or_url(place: str) -> Path | str:
    """Parse a user's place: the path of a file or folder, or the URL of an object store.

    Raises:
        NotFoundError: it is empty, or looks like a URL with a missing character, and no such path exists.
    """
    if place.startswith(_FILE):
        place = place.removeprefix(_FILE).removeprefix("//")
    elif is_url(place):
        return place.rstrip("/")
    elif _NEARLY_URL.match(place) and not Path(place).exists():
        raise NotFoundError(f"there is nothing at {place}, which looks like a mistyped URL; {_FORMS}")
    if not place:
        raise NotFoundError(f"the place is empty; {_FORMS}")
    return Path(place).expanduser().absolute()


def open_store(where: str, timeout_s: float = TIMEOUT_S) -> tuple[str, ObjectStore]:
    """Open a folder of an object store, without any request; the store's paths are relative to it.

    Also returns the folder's URL without credentials and parameters.

    Raises:
        NotFoundError: the kind of URL is unknown.
        MissingExtraError: the package for it is not installed.
        StoreError: the URL is otherwise invalid.
    """
    try:
        from obstore.exceptions import BaseError
        from obstore.store import from_url
    except ImportError:
        raise MissingExtraError(where, "export") from None
    parts = urlsplit(where)
    if parts.scheme not in _SCHEMES:
        raise NotFoundError(f"{where} is not the URL of a supported object store; {_FORMS}")
    name = parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl().rstrip("/")
    try:
        return name, from_url(
            where,
            client_options={
                "timeout": timedelta(seconds=timeout_s),
                "connect_timeout": timedelta(seconds=10),
                # Only if the user's own endpoint uses http.
                "allow_http": True,
            },
            retry_config={"max_retries": _RETRIES, "retry_timeout": timedelta(seconds=timeout_s)},
        )
    except (BaseError, ValueError, OSError) as error:
        raise StoreError(f"{name} cannot be opened ({reason_of(error)}); {_FORMS}") from None


def reason_of(error: Exception) -> str:
    """The message of an object store's error as one line; the library's message has many."""
    return " ".join(str(error).split("\n\nDebug source:")[0].split())
