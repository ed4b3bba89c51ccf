"""Files whose content the home knows from another file, and what to do with them."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Literal, get_args

from ..errors import AdmissionError, DuplicateFileError

if TYPE_CHECKING:
    from openlineage.client import OpenLineageClient

    from ..home import Home
    from .file_run import FileIdentity

OnDuplicate = Literal["record", "warn", "raise"]
"""What to do with a file whose content is known: record it as any other, warn as well, or raise an error."""


def check_options(on_duplicate: str, *, fingerprint: bool, force: bool) -> None:
    """Raise an `AdmissionError` for options that are unknown, or have no effect."""
    if on_duplicate not in get_args(OnDuplicate):
        words = ", ".join(map(repr, get_args(OnDuplicate)))
        raise AdmissionError("on_duplicate", f"is {on_duplicate!r}", f"give one of {words}")
    for name, is_given in (("on_duplicate", on_duplicate != "record"), ("force", force)):
        if is_given and not fingerprint:
            raise AdmissionError(name, "has no effect without a fingerprint", "give fingerprint=True as well")


def home_of(client: OpenLineageClient) -> Home | None:
    """The home in which a client's transport keeps events, alone or among others; None if none does."""
    from ..transport import WaybillTransport

    several = getattr(client.transport, "transports", ())
    transports = (client.transport, *several)
    return next((one.home for one in transports if isinstance(one, WaybillTransport)), None)


def original_of(file: FileIdentity, home: Home | None) -> str | None:
    """The did of the first file with the same content that the home knows, if that is another file."""
    if home is None or file.content is None:
        return None
    first = home.journal.first_with(str(file.content.fingerprint))
    return None if first is None or first.did == file.did else first.did


def tell_duplicate(file: FileIdentity, original: str, on_duplicate: OnDuplicate) -> None:
    """Warn of a file whose content is known, or raise a `DuplicateFileError`."""
    if on_duplicate == "record" or file.content is None:
        return
    error = DuplicateFileError(file.filename, str(file.content.fingerprint), original)
    if on_duplicate == "raise":
        raise error
    warnings.warn(str(error), RuntimeWarning, stacklevel=3)
