"""Every error Waybill raises on purpose.

    WaybillError
    ├── SettingsError             a setting is unknown, malformed or impossible here
    │   └── SettingsConflictError a live runner of the same home works with another value
    ├── AdmissionError            an event or record is not what its specification asks for
    ├── JournalError              the journal cannot do what was asked of it
    │   ├── JournalFullError      no room: the disk, or `journal_max_bytes`
    │   └── JournalVersionError   a newer Waybill wrote this journal
    ├── TrackerStateError         a file was told something that cannot follow what was told before
    ├── SparkSetupError           no tracked Spark session can be made (in `waybill.spark`)
    └── DestinationError          an export cannot go there, or it fails (in `waybill.exporter`)

Each is built from plain values only, so that it survives pickling: Spark and multiprocessing ship errors
between processes.
"""

from __future__ import annotations


class WaybillError(Exception):
    """Base of all errors of Waybill; its text is one sentence that ends with the way out."""

    def __reduce__(self) -> tuple[type[WaybillError], tuple[object, ...]]:
        """Pickle by the constructor's own arguments, which each subclass keeps in ``args``."""
        return type(self), self.args


class SettingsError(WaybillError):
    """A setting cannot be used.

    Args:
        name: the setting.
        value: what was found there.
        origin: where it was found, for example ``environment WAYBILL_ROOT``.
        what: what is wrong with it and what to do, as the end of a sentence.
    """

    def __init__(self, name: str, value: object, origin: str, what: str) -> None:
        """Keep the parts; `str()` joins them into the sentence."""
        super().__init__(name, value, origin, what)
        self.name = name
        self.value = value
        self.origin = origin
        self.what = what

    def __str__(self) -> str:
        """The sentence: setting, value, origin, and the way out."""
        return f"setting {self.name} = {self.value!r} (from {self.origin}): {self.what}"


class SettingsConflictError(SettingsError):
    """A live runner of this home projects with another value of a setting it cannot change while it runs."""


class AdmissionError(WaybillError):
    """An event or record was refused before it reached the journal.

    Args:
        where: JSON path of the fault, for example ``$.run.runId``.
        what: what is wrong there.
        way_out: what the sender can do.
    """

    def __init__(self, where: str, what: str, way_out: str) -> None:
        """Keep the parts; `str()` joins them into the sentence."""
        super().__init__(where, what, way_out)
        self.where = where
        self.what = what
        self.way_out = way_out

    def __str__(self) -> str:
        """The sentence: place, fault, and the way out."""
        return f"{self.where}: {self.what}; {self.way_out}"


class JournalError(WaybillError):
    """The journal could not be opened, read or written."""


class JournalFullError(JournalError):
    """The entry was not kept because there is no room for it."""


class JournalVersionError(JournalError):
    """The journal's schema is newer than this Waybill knows."""


class TrackerStateError(WaybillError):
    """A path was asked for something that cannot follow what was said about it before.

    Args:
        file: the file's name and did, as its ``repr`` shows them.
        call: what was called.
        state: what it cannot follow.
        way_out: what to do instead.
    """

    def __init__(self, file: str, call: str, state: str, way_out: str) -> None:
        super().__init__(file, call, state, way_out)
        self.file = file
        self.call = call
        self.state = state
        self.way_out = way_out

    def __str__(self) -> str:
        return f"{self.file}: {self.call} cannot follow {self.state}; {self.way_out}"
