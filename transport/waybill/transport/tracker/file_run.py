"""A file run: what all paths of one file share, and how what a program says becomes text that can be kept."""

from __future__ import annotations

import threading
import time
import traceback
from typing import TYPE_CHECKING, Final, NoReturn

from waybill.transport.errors import AdmissionError
from waybill.transport.tracker.file_events import Failure, FileIdentity, event_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from openlineage.client.event_v2 import RunEvent

    from waybill.transport.tracker.file_events import PathState

SINKS_MAX: Final = 32
"""A data source with more sinks names them after its files, so that they are not ends of one flow."""

_SOURCES_MAX: Final = 1_000
"""The sinks of more data sources are not remembered."""


class OfOneProcess:
    """What cannot be pickled, because its connection to the journal is that of its process."""

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled."""
        raise TypeError(
            f"a {type(self).__name__} cannot be sent to another process; make a Tracker there, within the "
            "function that runs there, and send it what it has to know as text"
        )


class KnownSinks:
    """The sinks of data sources: those declared, and those that files left by. Threads may share one.

    Marquez takes the datasets that the last run of a job named for all that the job has. So each event of a
    file names all sinks of its data source, whichever of them this file leaves by in the end.
    """

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()
        self._of: Final[dict[str, frozenset[str]]] = {}

    def learn(self, data_source: str, data_sinks: Iterable[str]) -> None:
        """Remember sinks of a data source."""
        new = frozenset(data_sinks)
        if new <= self._of.get(data_source, frozenset()):
            return
        with self._lock:
            known = self._of.get(data_source, frozenset())
            if data_source in self._of or len(self._of) < _SOURCES_MAX:
                # One more than the limit is kept, as the sign that there are too many.
                self._of[data_source] = frozenset(sorted(known | new)[: SINKS_MAX + 1])

    def of(self, data_source: str) -> frozenset[str]:
        """The sinks of a data source; empty if there are too many."""
        known = self._of.get(data_source, frozenset())
        return known if len(known) <= SINKS_MAX else frozenset()


class FileRun(OfOneProcess):
    """What the paths of one file share: its identity, its clock, and where its events go.

    Args:
        identity: the file.
        emit: takes an event; what it raises reaches the caller of `tell`.
        sinks: those of all data sources.
    """

    def __init__(self, identity: FileIdentity, emit: Callable[[RunEvent], None], sinks: KnownSinks) -> None:
        self.identity: Final = identity
        self.sinks: Final = sinks
        self.recorded: Final[list[BaseException]] = []
        """The exceptions that branches ended with; cleared when the file's own block is left."""
        self._emit: Final = emit
        self._lock: Final = threading.Lock()
        self._last_ms = identity.created_ms - 1

    def child(self, filename: str, data_source: str, created_ms: int) -> FileRun:
        """Make the run of a file that was split from this one; no event is emitted yet."""
        identity = FileIdentity(
            parent=self.identity,
            system_name=self.identity.system_name,
            data_source=data_source,
            filename=filename,
            created_ms=created_ms,
        )
        return FileRun(identity, self._emit, self.sinks)

    def tell(self, state: PathState) -> None:
        """Emit the event that says what has become of a path."""
        source = self.identity.data_source
        if state.data_sink is not None:
            self.sinks.learn(source, [state.data_sink])
        self._emit(event_of(self.identity, state, self.sinks.of(source)))

    def next_instant_ms(self) -> int:
        """Take an instant after every earlier one of this file, whatever the clock does."""
        with self._lock:
            self._last_ms = max(now_ms(), self._last_ms + 1)
            return self._last_ms


def now_ms() -> int:
    """Read the clock, in epoch milliseconds."""
    return time.time_ns() // 1_000_000


def failure_of(cause: BaseException | str) -> Failure:
    """Describe what went wrong, even if the exception cannot be printed."""
    if isinstance(cause, str):
        return Failure(text_of(cause))
    kind = type(cause)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    try:
        words = str(cause)
        trace = "".join(traceback.format_exception(cause))
    except Exception:  # noqa: BLE001 - the exception's own code runs here, and may raise anything
        return Failure(name)
    return Failure(text_of(f"{name}: {words}" if words else name), text_of(trace))


def text_of(text: str) -> str:
    """Escape what some backends refuse: NUL, and the lone surrogates of file names that are not UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


def annotations_of(annotations: Mapping[str, object] | None) -> dict[str, str]:
    """Turn annotations into texts: `str(value)`, and true or false for a bool.

    Raises:
        AdmissionError: a value is None.
    """
    texts = {}
    for key, value in (annotations or {}).items():
        if value is None:
            raise AdmissionError(f"annotations.{key}", "is None", "leave it out, or give it a text")
        texts[text_of(key)] = text_of(str(value).lower() if isinstance(value, bool) else str(value))
    return texts


def name_of(what: str, name: str) -> str:
    """Check the name of a flow or system.

    Raises:
        AdmissionError: it is empty.
    """
    if not name:
        raise AdmissionError(what, "is empty", "give it a name")
    return text_of(name)


def list_of(what: str, names: Iterable[str]) -> list[str]:
    """List names, and refuse a single text, whose characters would be taken for names.

    Raises:
        AdmissionError: it is a single text.
    """
    if isinstance(names, str):
        raise AdmissionError(what, f"is the single text {names!r}", "give a list of names")
    return list(names)


def sinks_of(names: Iterable[str]) -> list[str]:
    """Check the names of the sinks of a flow."""
    return [name_of("data_sinks", name) for name in list_of("data_sinks", names)]
