"""Object stores, opened by URL: S3 and compatible ones, Google's and Azure's."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from waybill.transport import WaybillError

if TYPE_CHECKING:
    from obstore.store import ObjectStore

TIMEOUT_S: Final = 120.0
"""No request to an object store takes longer."""

_RETRIES: Final = 8
_SCHEMES: Final = frozenset({"s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "adl"})
_FILE: Final = "file:"
"""Java writes one slash after it, others three."""

_FORMS: Final = "give s3://bucket/folder, gs://…, az://… or the path of a folder"


class StoreError(WaybillError):
    """An object store cannot be opened; the message says what to do."""


def is_url(where: str) -> bool:
    """Whether it is the URL of an object store rather than the path or URL of a folder."""
    return "://" in where and not where.startswith(_FILE)


def local_or_url(place: str) -> Path | str:
    """Read what a user gave: the path of a file or folder, or the URL of an object store."""
    if is_url(place):
        return place.rstrip("/")
    return Path(place.removeprefix(_FILE).removeprefix("//") if place.startswith(_FILE) else place).absolute()


def open_store(where: str, timeout_s: float = TIMEOUT_S) -> tuple[str, ObjectStore]:
    """Open a folder of an object store, without a request yet; the store's paths are relative to the folder.

    With the store comes the folder's URL without credentials and parameters.

    Raises:
        StoreError: the kind of URL is unknown, or the package for it is not installed.
    """
    try:
        from obstore.exceptions import BaseError
        from obstore.store import from_url
    except ImportError:
        raise StoreError(f"{where} needs the extra `export`: pip install 'waybill-lineage[export]'") from None
    parts = urlsplit(where)
    if parts.scheme not in _SCHEMES:
        raise StoreError(f"{where} is of no object store that is known; {_FORMS}")
    name = parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl().rstrip("/")
    try:
        return name, from_url(
            where,
            client_options={
                "timeout": timedelta(seconds=timeout_s),
                "connect_timeout": timedelta(seconds=10),
                # Only where the user's own endpoint is one of http.
                "allow_http": True,
            },
            retry_config={"max_retries": _RETRIES, "retry_timeout": timedelta(seconds=timeout_s)},
        )
    except (BaseError, ValueError, OSError) as error:
        raise StoreError(f"{name} cannot be opened ({reason_of(error)}); {_FORMS}") from None


def reason_of(error: Exception) -> str:
    """The message of an object store's error as one line: the library's own has many."""
    return " ".join(str(error).split("\n\nDebug source:")[0].split())
