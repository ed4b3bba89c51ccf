"""Every error that Waybill raises on purpose; `waybill.spark` and `waybill.exporter` add one each.

Each is built from plain values only, so that it survives pickling: Spark and multiprocessing ship errors
between processes.
"""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """Why admission refuses a body."""

    MALFORMED = "malformed"
    """It is no JSON in UTF-8."""
    TOO_LARGE = "too large"
    TOO_DEEP = "too deep"
    INVALID = "invalid"
    """It is JSON, but not what is asked for."""

    @property
    def http_status(self) -> int:
        """The status that every HTTP endpoint answers with."""
        return _HTTP_STATUSES.get(self, 422)


_HTTP_STATUSES = {Reason.MALFORMED: 400, Reason.TOO_LARGE: 413}


class WaybillError(Exception):
    """Base of all errors of Waybill; its text is one sentence that ends with the way out."""

    def __reduce__(self) -> tuple[type[WaybillError], tuple[object, ...]]:
        """Pickle the constructor's arguments, which each subclass keeps in ``args``."""
        return type(self), self.args


class SettingsError(WaybillError):
    """A setting cannot be used.

    Args:
        origin: where the value was given, for example ``environment WAYBILL_ROOT``.
        what: what is wrong with it and what to do, as the end of a sentence.
    """

    def __init__(self, name: str, value: object, origin: str, what: str) -> None:
        super().__init__(name, value, origin, what)
        self.name = name
        self.value = value
        self.origin = origin
        self.what = what

    def __str__(self) -> str:
        return f"setting {self.name} = {self.value!r} (from {self.origin}): {self.what}"


class SettingsConflictError(SettingsError):
    """A live runner of this home works with another value, and the settings are strict."""


class AdmissionError(WaybillError):
    """An event or record was refused before it reached the journal.

    Args:
        where: JSON path, for example ``$.run.runId``.
        way_out: what the sender can do.
        reason: the kind of the refusal, for programs.
    """

    def __init__(self, where: str, what: str, way_out: str, reason: Reason = Reason.INVALID) -> None:
        super().__init__(where, what, way_out, reason)
        self.where = where
        self.what = what
        self.way_out = way_out
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.where}: {self.what}; {self.way_out}"


class JournalError(WaybillError):
    """The journal could not be opened, read or written."""


class JournalFullError(JournalError):
    """An entry was not kept because there is no room for it."""


class JournalTooLargeError(JournalError):
    """A value was not kept because it is larger than the journal's database takes."""


class JournalVersionError(JournalError):
    """The journal's schema is newer than this Waybill knows."""


class RootError(WaybillError):
    """The folder at the root's path is not the root that the home files into, or is an older copy of it."""


class TrackerStateError(WaybillError):
    """A path was asked for something that cannot follow what was said about it before.

    Args:
        file: the file's name and did, as its ``repr`` shows them.
        state: what it cannot follow.
    """

    def __init__(self, file: str, call: str, state: str, way_out: str) -> None:
        super().__init__(file, call, state, way_out)
        self.file = file
        self.call = call
        self.state = state
        self.way_out = way_out

    def __str__(self) -> str:
        return f"{self.file}: {self.call} cannot follow {self.state}; {self.way_out}"
