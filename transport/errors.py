"""All errors that Waybill raises on purpose, except one each in `waybill.spark` and `waybill.exporter`.

Each error holds only plain values, so it survives pickling: Spark and multiprocessing send errors between
processes.
"""

from __future__ import annotations

import errno
import os
import shlex
from enum import StrEnum


class Reason(StrEnum):
    """Why admission refuses a body."""

    MALFORMED = "malformed"
    """It is not JSON in UTF-8."""
    TOO_LARGE = "too large"
    TOO_DEEP = "too deep"
    INVALID = "invalid"
    """It is JSON, but not of the expected form."""

    @property
    def http_status(self) -> int:
        """The HTTP status that every endpoint returns."""
        return _HTTP_STATUSES.get(self, 422)


_HTTP_STATUSES = {Reason.MALFORMED: 400, Reason.TOO_LARGE: 413}


class WaybillError(Exception):
    """Base class of all Waybill errors. The message is one sentence that ends with what to do."""

    def __reduce__(self) -> tuple[type[WaybillError], tuple[object, ...]]:
        """Pickle by the constructor's arguments, which each subclass keeps in ``args``."""
        return type(self), self.args


class SettingsError(WaybillError):
    """A setting is invalid, or cannot be used here.

    Args:
        origin: where the value was given, for example ``environment WAYBILL_ROOT``.
        what: the problem and what to do about it, as the end of a sentence.
    """

    def __init__(self, name: str, value: object, origin: str, what: str) -> None:
        super().__init__(name, value, origin, what)
        self.name = name
        self.value = value
        self.origin = origin
        self.what = what

    def __str__(self) -> str:
        return f"setting {self.name} = {self.value!r} (from {self.origin}): {self.what}"


class SettingsFileError(SettingsError):
    """A file of settings cannot be read.

    Args:
        path: the file.
        what: the problem and what to do about it, as the end of a sentence.
    """

    def __init__(self, path: str, what: str) -> None:
        super().__init__("(file)", path, path, what)
        self.args = path, what

    def __str__(self) -> str:
        return f"the settings file {self.origin} {self.what}"


class SettingsConflictError(SettingsError):
    """The home uses another value: of the root, or, if the settings are strict, its live runner does."""


class NotFoundError(WaybillError):
    """Something that the caller named does not exist: a home, a root, a backend, an ID."""


class NameTakenError(WaybillError):
    """What the caller would make has the name of something that is there already."""


class MissingExtraError(WaybillError):
    """A feature needs packages that are not installed.

    Args:
        what: the feature, as the beginning of a sentence.
        extra: the extra of this package that installs them.
    """

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(what, extra)
        self.what = what
        self.extra = extra

    def __str__(self) -> str:
        return f"{self.what} needs the extra `{self.extra}`: {install_command(self.extra)}"


def install_command(extra: str) -> str:
    """The command that adds an extra to this installation, whatever Waybill was installed from."""
    from importlib.metadata import Distribution

    found = Distribution.discover(name="waybill-lineage")
    required = (line.partition("; ") for one in found for line in one.requires or ())
    packages = dict.fromkeys(package for package, _, marker in required if marker == f"extra == '{extra}'")
    return shlex.join(["pip", "install", *packages])


class AdmissionError(WaybillError):
    """An event or record was refused before it reached the journal.

    Args:
        where: JSON path, for example ``$.run.runId``.
        way_out: what the sender can do.
        reason: the kind of refusal, for programs.
    """

    def __init__(self, where: str, what: str, way_out: str, reason: Reason = Reason.INVALID) -> None:
        super().__init__(where, what, way_out, reason)
        self.where = where
        self.what = what
        self.way_out = way_out
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.where}: {self.what}; {self.way_out}"


class FingerprintError(WaybillError):
    """A file has no fingerprint: it is no regular one, it changed, or it is damaged.

    Args:
        file: the file's path or name.
        offset_bytes: how far the file was read.
        what: the problem and what to do about it, as the end of a sentence.
    """

    def __init__(self, file: str, offset_bytes: int, what: str) -> None:
        super().__init__(file, offset_bytes, what)
        self.file = file
        self.offset_bytes = offset_bytes
        self.what = what

    def __str__(self) -> str:
        return f"{self.file}: {self.what}"


class JournalError(WaybillError):
    """The journal could not be opened, read or written."""


class JournalFullError(JournalError):
    """An entry was not kept because there is no space for it."""


class JournalTooLargeError(JournalError):
    """A value was not kept because it is too large for the journal's database."""


class JournalVersionError(JournalError):
    """The journal's schema is newer than this version of Waybill supports."""


class RootError(WaybillError):
    """The folder at the root's path is not this home's root, or is an older copy of it."""


class TrackerStateError(WaybillError):
    """A call on a tracked file is not allowed after an earlier one.

    Args:
        file: the file's name and did, as its ``repr`` shows them.
        state: the earlier call.
    """

    def __init__(self, file: str, call: str, state: str, way_out: str) -> None:
        super().__init__(file, call, state, way_out)
        self.file = file
        self.call = call
        self.state = state
        self.way_out = way_out

    def __str__(self) -> str:
        return f"{self.file}: {self.call} is not allowed after {self.state}; {self.way_out}"


class DuplicateFileError(WaybillError):
    """A file has the same content as one that is known, and the caller asked for an error then.

    Args:
        file: the file's name.
        fingerprint: of the content of both.
        duplicate_of: the did of the first file with this content.
    """

    def __init__(self, file: str, fingerprint: str, duplicate_of: str) -> None:
        super().__init__(file, fingerprint, duplicate_of)
        self.file = file
        self.fingerprint = fingerprint
        self.duplicate_of = duplicate_of

    def __str__(self) -> str:
        return (
            f"{self.file} has the same content as the file {self.duplicate_of} ({self.fingerprint}); "
            "skip it, or give force=True to process it again"
        )


_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})

_REASONS = {
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.EROFS: "it is read-only",
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.ENOENT: "it is not there",
    errno.ENOTDIR: "a part of its path is a file",
    errno.EISDIR: "it is a folder",
    errno.EIO: "the disk failed",
}


def reason_of(error: Exception) -> str:
    """Why something failed, in plain words; an `OSError` without its number and its path."""
    if not isinstance(error, OSError) or error.errno is None:
        return str(error)
    plain = error.strerror or os.strerror(error.errno)
    return _REASONS.get(error.errno) or plain[:1].lower() + plain[1:]


def sentence_of(error: Exception) -> str:
    """An error as a sentence that ends with the way out; an `OSError` names its path once."""
    if not isinstance(error, OSError) or error.errno is None:
        return str(error)
    if error.errno in _FULL:
        where = f" of {os.path.dirname(os.fsdecode(error.filename))}" if error.filename else ""  # noqa: PTH120 - it may be bytes
        return f"the disk{where} is full; free space there, nothing that was acknowledged is lost"
    where = f"{os.fsdecode(error.filename)}: " if error.filename else ""
    return f"{where}{reason_of(error)}; check its disk and its permissions"
