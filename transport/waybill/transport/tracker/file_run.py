"""A file's passage: what all its paths share, and how what a program says becomes text that can be kept."""

from __future__ import annotations

import threading
import time
import traceback
from typing import TYPE_CHECKING, Final, NoReturn

from waybill.transport.errors import AdmissionError
from waybill.transport.tracker.file_events import FailureCause, FileIdentity, begin_event, end_event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from openlineage.client.event_v2 import RunEvent

    from waybill.transport.tracker.file_events import PathEnd
    from waybill.transport.tracker.known_sinks import KnownSinks


class OfOneProcess:
    """What cannot be pickled, because its connection to the journal is that of its process."""

    def __reduce__(self) -> NoReturn:
        """Say so.

        Raises:
            TypeError: always.
        """
        raise TypeError(
            f"a {type(self).__name__} cannot be sent to another process; make a Tracker there, within the "
            "function that runs there, and send it what it has to know as text"
        )


class FileRun(OfOneProcess):
    """One file's identity, its clock, the way out for its events, and what its branches failed by.

    Args:
        identity: the file.
        emit: hands an event over; what it raises reaches whoever said what the event tells.
        sinks: what is known of the sinks of all data sources.
    """

    def __init__(self, identity: FileIdentity, emit: Callable[[RunEvent], None], sinks: KnownSinks) -> None:
        self.identity: Final = identity
        self.told: Final[list[BaseException]] = []
        """What branches ended by, compared by identity; cleared as the file's own block is left."""
        self._emit: Final = emit
        self._sinks: Final = sinks
        self._lock: Final = threading.Lock()
        self._last_ms = identity.created_ms - 1

    def child(self, filename: str, data_source: str, created_ms: int) -> FileRun:
        """Make the passage of a file that was split from this one; nothing is said of it yet."""
        identity = FileIdentity(
            did=mint_did(),
            parent=self.identity,
            system_name=self.identity.system_name,
            data_source=data_source,
            filename=filename,
            created_ms=created_ms,
        )
        return FileRun(identity, self._emit, self._sinks)

    def learn(self, data_source: str, data_sinks: Iterable[str]) -> None:
        """Take in that files of a data source leave by these sinks."""
        self._sinks.learn(data_source, data_sinks)

    def begin(self, annotations: Mapping[str, str]) -> None:
        """Say that the file has begun."""
        self._emit(begin_event(self.identity, annotations, self._sinks.of(self.identity.data_source)))

    def end(self, end: PathEnd) -> None:
        """Say that one path has ended."""
        source = self.identity.data_source
        if end.data_sink is not None:
            self.learn(source, [end.data_sink])
        self._emit(end_event(self.identity, end, self._sinks.of(source)))

    def next_instant_ms(self) -> int:
        """Take an instant after every earlier one of this file, whatever the clock does."""
        with self._lock:
            self._last_ms = max(now_ms(), self._last_ms + 1)
            return self._last_ms


def mint_did() -> str:
    """Make the identity of a new file: a UUIDv7."""
    from openlineage.client.uuid import generate_new_uuid

    return str(generate_new_uuid())


def now_ms() -> int:
    """Read the clock, in epoch milliseconds."""
    return time.time_ns() // 1_000_000


def failure_of(cause: BaseException | str) -> FailureCause:
    """Describe what went wrong; an exception whose text cannot be had is described all the same."""
    if isinstance(cause, str):
        return FailureCause(text_of(cause))
    kind = type(cause)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    try:
        words = str(cause)
        trace = "".join(traceback.format_exception(cause))
    except Exception:  # noqa: BLE001 - the exception's own code runs here, and may raise anything
        return FailureCause(name)
    return FailureCause(text_of(f"{name}: {words}" if words else name), text_of(trace))


def text_of(text: str) -> str:
    """Escape what not every backend takes: NUL, and the lone surrogates of file names that are not UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


def annotations_of(annotations: Mapping[str, object] | None) -> dict[str, str]:
    """Turn annotations into texts: `str(value)`, and true or false for a bool.

    Raises:
        AdmissionError: a value is None.
    """
    return {text_of(key): text_of(_value_of(key, value)) for key, value in (annotations or {}).items()}


def name_of(what: str, name: str) -> str:
    """Check the name of a flow or system.

    Raises:
        AdmissionError: it is empty.
    """
    if not name:
        raise AdmissionError(what, "is empty", "give it a name")
    return text_of(name)


def filenames_of(names: Iterable[str]) -> list[str]:
    """Check the names of the files that one came apart into.

    Raises:
        AdmissionError: there are none, or it is one text instead of several.
    """
    if isinstance(names, str):
        raise AdmissionError("filenames", f"is the single text {names!r}", "give a list of names")
    listed = [text_of(name) for name in names]
    if not listed:
        raise AdmissionError("filenames", "is empty", "call filter(reason) if there was nothing in the file")
    return listed


def sinks_of(names: Iterable[str]) -> list[str]:
    """Check the names of the sinks that a flow has.

    Raises:
        AdmissionError: one is empty, or they are one text instead of several.
    """
    if isinstance(names, str):
        raise AdmissionError("data_sinks", f"is the single text {names!r}", "give a list of names")
    return [name_of("data_sinks", name) for name in names]


def size_of(size_bytes: int | None) -> int | None:
    """Check a size, where there is one.

    Raises:
        AdmissionError: it is below 0.
    """
    if size_bytes is not None and size_bytes < 0:
        raise AdmissionError("size_bytes", f"is {size_bytes}", "give how many bytes went to the sink")
    return size_bytes


def _value_of(key: str, value: object) -> str:
    if value is None:
        raise AdmissionError(f"annotations.{key}", "is None", "leave it out, or give it a text")
    return str(value).lower() if isinstance(value, bool) else str(value)
