"""The Tracker: a Python program says what happens to each file, in the words of its own code.

    tracker = Tracker()
    with tracker.file("orders.csv.gz", data_source="sftp-in") as f:
        with f.transform("decompress"):
            ...
        f.egress("warehouse")

Each end of a path is one OpenLineage run event, handed to the client before the call returns: what has been said
survives a kill of the process. A file and its branches follow these rules:

- `Tracker.file` and `split` say that a file has begun (START); `with` only makes sure that it ends.
- `egress` may be said several times: one record each, on the same transforms. `branch` gives a further path, which
  has its own copy of the transforms and annotations so far.
- `filter`, `error`, `cancel` and `split` end a path for good. After `egress` a path can only `egress` again, `branch`,
  or fail: `error`, `cancel`. Anything else is a `TrackerStateError`, and nothing is recorded for it.
- A block that is left with nothing said is COMPLETE without a sink; a file that went on in branches has said enough.
- An exception that leaves a block goes on to the caller. It makes the path ERROR, or CANCELLED when it only stops the
  work (Ctrl-C, a closed generator, a cancelled task: no `Exception`; `SystemExit` is ERROR). It is told once: not again
  for the file whose branch it left, nor for a path that had ended already.
- The ends of one file have instants of their own, each at least 1 ms after the one before, since two ends alike in
  sink, transforms and instant would be one record told twice.
- A child of `split` that nobody takes further stays begun and gives no record: nothing is known of it.

Files may be tracked from many threads through one Tracker; a path belongs to one thread at a time.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Final, Self

from waybill.facets import FinalState
from waybill.transport.errors import AdmissionError, WaybillError
from waybill.transport.file_events import (
    FileIdentity,
    PathEnd,
    begin_event,
    end_event,
    failure_of,
    plain_text,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from types import TracebackType

    from openlineage.client import OpenLineageClient
    from openlineage.client.event_v2 import RunEvent

    from waybill.transport.file_events import Failure
    from waybill.transport.settings import Settings

ERROR_CAUSE: Final = "errorCause"
"""Annotation of an ERROR: the first line of what went wrong."""

FILTERED_CAUSE: Final = "filteredCause"
"""Annotation of a FILTERED path: the reason that was given."""


class TrackerStateError(WaybillError):
    """A path was asked for something after its end.

    Args:
        file: the file's name and did, as ``repr`` shows them.
        call: what was called.
        state: how the path stands.
        way_out: what to do instead.
    """

    def __init__(self, file: str, call: str, state: str, way_out: str) -> None:
        """Keep the parts; `str()` joins them into the sentence."""
        super().__init__(file, call, state, way_out)
        self.file = file
        self.call = call
        self.state = state
        self.way_out = way_out

    def __str__(self) -> str:
        """The sentence: file, call, state, and the way out."""
        return f"{self.file}: {self.call} cannot follow {self.state}; {self.way_out}"


class Tracker:
    """Tracks files: each from `file` to its ends.

    Args:
        client: where the events go; the caller closes it. None: a client of its own over `WaybillTransport`.
        system_name: the instance's name in the records; None: the setting of that name.
        settings: for the client of its own and the system name; None: gathered as everywhere (`Settings.load`).

    Raises:
        SettingsError: a setting that is needed cannot be used.
        JournalError: the journal of its own client cannot be opened.
        AdmissionError: the system name is empty.
    """

    def __init__(
        self,
        client: OpenLineageClient | None = None,
        *,
        system_name: str | None = None,
        settings: Settings | None = None,
    ) -> None:
        if settings is None and (client is None or system_name is None):
            from waybill.transport.settings import Settings

            settings = Settings.load()
        if system_name is None and settings is not None:
            system_name = settings.system_name
        self.system_name: Final = _named("system_name", system_name or "")
        self._own: Final = _open_client(settings) if client is None and settings is not None else None
        self._emit: Final[Callable[[RunEvent], None]] = (client or self._own).emit

    def file(
        self, filename: str, *, data_source: str, annotations: Mapping[str, object] | None = None
    ) -> TrackedFile:
        """Say that a file has come in, and get it as something to say more about; use it in a `with`.

        Args:
            filename: its name, kept as given.
            data_source: the flow it came in by.
            annotations: what is known of it already, as for `TrackedFile.annotate`.

        Raises:
            AdmissionError: the data source is empty, or an annotation is None.
            JournalError: the event could not be kept.
        """
        identity = FileIdentity(
            did=_mint_did(),
            system_name=self.system_name,
            data_source=_named("data_source", data_source),
            filename=plain_text(filename),
            created_ms=_now_ms(),
        )
        return _begin(_Passage(identity, self._emit), _texts(annotations))

    def close(self, timeout: float = -1.0) -> bool:
        """Let go of the client, if it is the Tracker's own.

        Args:
            timeout: as for the client: seconds to wait for what is left undone, -1 for as long as it takes.

        Returns:
            Whether nothing is left undone.
        """
        return self._own is None or self._own.close(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class TrackedFile:
    """One file on one path; made by `Tracker.file`, `split` and `branch`.

    Use it in a `with`, which makes sure that the path has an end. The rules are at the top of this module.
    """

    def __init__(
        self, passage: _Passage, annotations: Mapping[str, str], transforms: Iterable[str] | None = None
    ) -> None:
        """For the Tracker, which gives transforms to a branch only; call `Tracker.file`."""
        self._passage: Final = passage
        self._annotations: Final = dict(annotations)
        self._transforms: Final = list(transforms or ())
        self._is_branch: Final = transforms is not None
        self._ended: str | None = None
        self._egressed = False
        self._branched = False

    @property
    def did(self) -> str:
        """The file's identity, the same on all its paths."""
        return self._passage.identity.did

    @property
    def parent_did(self) -> str | None:
        """The file it was split from."""
        parent = self._passage.identity.parent
        return parent.did if parent else None

    @property
    def filename(self) -> str:
        """Its name."""
        return self._passage.identity.filename

    @property
    def data_source(self) -> str:
        """The flow it came in by."""
        return self._passage.identity.data_source

    def annotate(self, annotations: Mapping[str, object] | None = None, /, **more: object) -> None:
        """Note something about the file on this path; a later value replaces an earlier one.

        Values are kept as text: ``str(value)``, and true or false for a bool.

        Raises:
            AdmissionError: a value is None.
            TrackerStateError: the path has ended, or has left by a sink already.
        """
        self._require_open("annotate()", "annotate before the end, so that the record can hold it")
        self._annotations.update(_texts(annotations) | _texts(more))

    @contextlib.contextmanager
    def transform(self, name: str) -> Iterator[None]:
        """Pass through a flow: adds it to the path for good, also when an exception leaves the block.

        Raises:
            AdmissionError: the name is empty.
            TrackerStateError: the path has ended, or has left by a sink already.
        """
        self._require_open("transform()", "transform before the end, or do it on a branch() of the file")
        self._transforms.append(_named("transform", name))
        yield

    def branch(self) -> TrackedFile:
        """Start a further path of the same file, with a copy of this one's transforms and annotations.

        Raises:
            TrackerStateError: the path has ended.
        """
        self._require_going_on("branch()", "open branches before the end")
        self._branched = True
        return TrackedFile(self._passage, self._annotations, self._transforms)

    def egress(self, data_sink: str) -> None:
        """Say that the file has left by a sink: COMPLETE. Say it once for every sink it left by.

        Raises:
            AdmissionError: the name is empty.
            TrackerStateError: the path has ended.
            JournalError: the event could not be kept; the path has not left, and it may be said again.
        """
        self._require_going_on("egress()", "egress before the end, or on a branch() opened before it")
        self._end(FinalState.COMPLETE, data_sink=_named("data_sink", data_sink))
        self._egressed = True

    def filter(self, reason: str) -> None:
        """Say that the file goes no further on purpose: FILTERED, the reason in the annotation `filteredCause`.

        Raises:
            TrackerStateError: the path has ended, or has left by a sink already.
            JournalError: the event could not be kept; the path has not ended, and it may be said again.
        """
        self._require_open("filter()", "filter before the end, or on a branch() of the file")
        self._end(FinalState.FILTERED, {FILTERED_CAUSE: plain_text(reason)})
        self._ended = "filter()"

    def error(self, cause: BaseException | str) -> None:
        """Say that the file failed: ERROR, the cause's first line in the annotation `errorCause`.

        The whole cause, with the stack trace of an exception, goes into OpenLineage's `errorMessage` facet.

        Raises:
            TrackerStateError: the path has ended.
            JournalError: the event could not be kept; the path has not ended, and it may be said again.
        """
        self._require_going_on(
            "error()", "an end cannot be taken back; track what failed as a branch() of its own"
        )
        failure = failure_of(cause)
        self._end(FinalState.ERROR, {ERROR_CAUSE: failure.message.partition("\n")[0]}, failure=failure)
        self._ended = "error()"
        if self._is_branch and isinstance(cause, BaseException):
            self._passage.told.append(cause)

    def cancel(self) -> None:
        """Say that somebody stopped the work on this file: CANCELLED.

        Raises:
            TrackerStateError: the path has ended.
            JournalError: the event could not be kept; the path has not ended, and it may be said again.
        """
        self._require_going_on("cancel()", "cancel before the end")
        self._end(FinalState.CANCELLED)
        self._ended = "cancel()"

    def split(
        self,
        filenames: Iterable[str],
        *,
        data_source: str | None = None,
        annotations: Mapping[str, object] | None = None,
    ) -> list[TrackedFile]:
        """Say that the file came apart into others: SPLIT. The children begin as the parent ends.

        The children are told first, so that a parent that is SPLIT always has its children.

        Args:
            filenames: the children's names, one at least.
            data_source: the children's; None: the parent's.
            annotations: the children's; None: a copy of the parent's on this path.

        Returns:
            The children in the same order, each to be used like a file of `Tracker.file`.

        Raises:
            AdmissionError: no names, the data source is empty, or an annotation is None.
            TrackerStateError: the path has ended, or has left by a sink already.
            JournalError: an event could not be kept; the path has not ended, and splitting again makes new children.
        """
        self._require_open("split()", "split before the end, or on a branch() of the file")
        names = [plain_text(name) for name in _several("filenames", filenames)]
        inherited = self._annotations if annotations is None else _texts(annotations)
        parent = self._passage.identity
        source = parent.data_source if data_source is None else _named("data_source", data_source)
        instant_ms = self._passage.next_instant_ms()
        children = [
            _begin(
                self._passage.of_child(
                    FileIdentity(
                        did=_mint_did(),
                        parent=parent,
                        system_name=parent.system_name,
                        data_source=source,
                        filename=name,
                        created_ms=instant_ms,
                    )
                ),
                inherited,
            )
            for name in names
        ]
        self._end(FinalState.SPLIT, completed_ms=instant_ms)
        self._ended = "split()"
        return children

    def __enter__(self) -> Self:
        self._require_going_on("a block", "use one block for each path, and say its end inside")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if raised is not None:
                self._fail(raised)
            elif self._ended is None and not (self._egressed or self._branched):
                self._end(FinalState.COMPLETE)
        finally:
            self._ended = self._ended or "the end of its block"
            if not self._is_branch:
                self._passage.told.clear()
            elif raised is not None:
                self._passage.told.append(raised)

    def __repr__(self) -> str:
        return f"<file {self.filename!r} {self.did}>"

    def _fail(self, raised: BaseException) -> None:
        if self._ended is not None or any(raised is told for told in self._passage.told):
            return
        stopped = not isinstance(raised, (Exception, SystemExit))
        try:
            if stopped:
                self.cancel()
            else:
                self.error(raised)
        except Exception as lost:  # noqa: BLE001 - the caller's exception is the one to raise, whatever befell ours
            raised.add_note(f"Waybill could not keep that {self!r} failed: {lost}")

    def _end(
        self,
        state: FinalState,
        cause: Mapping[str, str] | None = None,
        *,
        data_sink: str | None = None,
        failure: Failure | None = None,
        completed_ms: int | None = None,
    ) -> None:
        self._passage.tell_end(
            PathEnd(
                final_state=state,
                completed_ms=completed_ms or self._passage.next_instant_ms(),
                transforms=tuple(self._transforms),
                annotations=self._annotations | dict(cause or {}),
                data_sink=data_sink,
                failure=failure,
            )
        )

    def _require_going_on(self, call: str, way_out: str) -> None:
        if self._ended is not None:
            raise TrackerStateError(repr(self), call, self._ended, way_out)

    def _require_open(self, call: str, way_out: str) -> None:
        self._require_going_on(call, way_out)
        if self._egressed:
            raise TrackerStateError(repr(self), call, "egress()", way_out)


class _Passage:
    """What the paths of one file share: its identity, its clock, the way out, and what its branches ended by.

    The exceptions are compared by identity, and held no longer than the file's own block: they hold its frames.
    """

    def __init__(self, identity: FileIdentity, emit: Callable[[RunEvent], None]) -> None:
        self.identity: Final = identity
        self.told: Final[list[BaseException]] = []
        self._emit: Final = emit
        self._lock: Final = threading.Lock()
        self._last_ms = identity.created_ms - 1

    def of_child(self, identity: FileIdentity) -> _Passage:
        return _Passage(identity, self._emit)

    def next_instant_ms(self) -> int:
        """An instant after every other end of this file, whatever the clock does; branches may end in threads."""
        with self._lock:
            self._last_ms = max(_now_ms(), self._last_ms + 1)
            return self._last_ms

    def tell_begin(self, annotations: Mapping[str, str]) -> None:
        self._emit(begin_event(self.identity, annotations))

    def tell_end(self, end: PathEnd) -> None:
        self._emit(end_event(self.identity, end))


def _begin(passage: _Passage, annotations: Mapping[str, str]) -> TrackedFile:
    passage.tell_begin(annotations)
    return TrackedFile(passage, annotations)


def _open_client(settings: Settings) -> OpenLineageClient:
    from openlineage.client import OpenLineageClient

    from waybill.transport.transport import WaybillConfig, WaybillTransport

    return OpenLineageClient(transport=WaybillTransport(WaybillConfig(settings)))


def _mint_did() -> str:
    from openlineage.client.uuid import generate_new_uuid

    return str(generate_new_uuid())


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _texts(annotations: Mapping[str, object] | None) -> dict[str, str]:
    return {plain_text(key): plain_text(_value(key, value)) for key, value in (annotations or {}).items()}


def _value(key: str, value: object) -> str:
    if value is None:
        raise AdmissionError(f"annotations.{key}", "is None", "leave it out, or give it a text")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _named(what: str, name: str) -> str:
    if not name:
        raise AdmissionError(what, "is empty", "give it the flow's name")
    return plain_text(name)


def _several(what: str, names: Iterable[str]) -> list[str]:
    if isinstance(names, str):
        raise AdmissionError(what, f"is the single text {names!r}", "give a list of names")
    listed = list(names)
    if not listed:
        raise AdmissionError(what, "is empty", "call filter(reason) if there was nothing in the file")
    return listed
