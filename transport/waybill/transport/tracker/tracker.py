"""The Tracker: a Python program says what happens to each file, as it happens.

    tracker = Tracker()
    with tracker.file("orders.csv.gz", data_source="sftp-in") as f:
        with f.transform("decompress"):
            ...
        f.egress("warehouse")

The beginning of a file and each end of a path are OpenLineage run events, handed to the client before the
call returns, so that they survive a kill of the process. The rules:

- `Tracker.file` and `split` say that a file has begun; `with` only makes sure that it ends.
- `egress` may be called several times: a record each, with the same transforms. `branch` begins a further
  path, which has its own copy of the transforms and annotations so far.
- `filter`, `error`, `cancel` and `split` end a path for good. After `egress` a path can only `egress` again,
  `branch`, or fail (`error`, `cancel`). Anything else is a `TrackerStateError`, and records nothing.
- A block that is left without any of these is COMPLETE without a sink, unless the file went on in branches.
- An exception that leaves a block goes on to the caller. It makes the path ERROR, or CANCELLED if it only
  stops the work (Ctrl-C, a closed generator, a cancelled task: no `Exception`; `SystemExit` is ERROR). It is
  recorded once: not for a path that had ended already, and not again for the file whose branch it left.
- The ends of one file have instants of their own, at least 1 ms apart, because two ends with the same sink,
  transforms and instant are the same record.
- A child of `split` that is not used further has begun, but has no record: nothing more is known of it.

Files may be tracked in many threads through one Tracker; a path belongs to one thread at a time.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, Self

from waybill.facets import FinalState
from waybill.facets.causes import telling
from waybill.transport.config import Settings
from waybill.transport.errors import AdmissionError, TrackerStateError
from waybill.transport.tracker.file_run import (
    FileIdentity,
    FileRun,
    KnownSinks,
    OfOneProcess,
    PathState,
    annotations_of,
    failure_of,
    list_of,
    name_of,
    now_ms,
    sinks_of,
    text_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from types import TracebackType

    from openlineage.client import OpenLineageClient

    from waybill.transport.tracker.file_run import Failure


class Tracker(OfOneProcess):
    """Tracks files: each from `file` to its ends.

    Args:
        client: where the events go; the caller closes it. None: a client of its own over `WaybillTransport`.
        system_name: the instance's name in the records; None: the setting of that name.
        settings: for both; None: those that `Settings.load` finds.

    Raises:
        SettingsError: a setting cannot be used.
        JournalError: the home cannot be opened.
        AdmissionError: the system name is empty.
    """

    def __init__(
        self,
        client: OpenLineageClient | None = None,
        *,
        system_name: str | None = None,
        settings: Settings | None = None,
    ) -> None:
        settings = Settings.load() if settings is None else settings
        self.system_name: Final = name_of(
            "system_name", settings.system_name if system_name is None else system_name
        )
        self._owns_client: Final = client is None
        self._sinks: Final = KnownSinks()
        if client is None:
            from openlineage.client import OpenLineageClient

            from waybill.transport.transport import WaybillConfig, WaybillTransport

            client = OpenLineageClient(transport=WaybillTransport(WaybillConfig(settings)))
        self._client: Final = client

    def file(
        self,
        filename: str,
        *,
        data_source: str,
        data_sinks: Iterable[str] = (),
        annotations: Mapping[str, object] | None = None,
    ) -> TrackedFile:
        """Say that a file has come in; use what is returned in a `with`.

        Args:
            filename: its name, kept as given.
            data_source: the flow it came in by.
            data_sinks: the flows that files of this data source leave by, whether this one will or not; each
                of their events names them as outputs. Sinks that a file left by need not be declared.
            annotations: what is known of it already, as for `TrackedFile.annotate`.

        Raises:
            AdmissionError: the data source or a data sink is empty, or an annotation is None.
            JournalError: the event could not be kept.
        """
        known, sinks = annotations_of(annotations), sinks_of(data_sinks)
        identity = FileIdentity(
            system_name=self.system_name,
            data_source=name_of("data_source", data_source),
            filename=text_of(filename),
            created_ms=now_ms(),
        )
        self._sinks.learn(identity.data_source, sinks)
        run = FileRun(identity, self._client.emit, self._sinks)
        run.tell(PathState(at_ms=identity.created_ms, annotations=known))
        return TrackedFile(run, known)

    def close(self, timeout: float = -1.0) -> bool:
        """Close the client if it is the Tracker's own; returns whether every event is durable.

        It waits at most `timeout` seconds until they are; -1: as long as it takes.
        """
        return self._client.close(timeout) if self._owns_client else True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class TrackedFile(OfOneProcess):
    """One file on one path; made by `Tracker.file`, `split` and `branch`.

    Use it in a `with`, which makes sure that the path has an end. A call that cannot follow what was said
    before raises `TrackerStateError`; the rules are at the top of this module.

    Whatever ends a path raises `JournalError` if that could not be kept. Then the path has not ended, and its
    end may be said again.
    """

    def __init__(
        self, run: FileRun, annotations: Mapping[str, str], transforms: Iterable[str] | None = None
    ) -> None:
        # Only a branch is given transforms, even if there are none.
        self._run: Final = run
        self._annotations: Final = dict(annotations)
        self._transforms: Final = list(transforms or ())
        self._is_branch: Final = transforms is not None
        self._ended: str | None = None
        self._egressed = False
        self._branched = False

    @property
    def did(self) -> str:
        """The file's identity, the same on all its paths."""
        return self._run.identity.did

    @property
    def parent_did(self) -> str | None:
        """The file it was split from."""
        parent = self._run.identity.parent
        return parent.did if parent else None

    @property
    def filename(self) -> str:
        """Its name."""
        return self._run.identity.filename

    @property
    def data_source(self) -> str:
        """The flow it came in by."""
        return self._run.identity.data_source

    def annotate(self, annotations: Mapping[str, object] | None = None, /, **more: object) -> None:
        """Note something about the file on this path; a later value replaces an earlier one.

        Values are kept as text: ``str(value)``, and true or false for a bool.

        Raises:
            AdmissionError: a value is None.
        """
        self._require_open("annotate()", "annotate before the end, so that the record can hold it")
        self._annotations.update(annotations_of(annotations) | annotations_of(more))

    @contextlib.contextmanager
    def transform(self, name: str) -> Iterator[None]:
        """Pass through a flow: adds it to the path for good, even if an exception leaves the block.

        Raises:
            AdmissionError: the name is empty.
        """
        self._require_open("transform()", "transform before the end, or on a branch() of the file")
        self._transforms.append(name_of("transform", name))
        yield

    def branch(self) -> TrackedFile:
        """Begin a further path of the same file, with a copy of this one's transforms and annotations."""
        self._require_going_on("branch()", "open branches before the end")
        self._branched = True
        return TrackedFile(self._run, self._annotations, self._transforms)

    def egress(self, data_sink: str, *, size_bytes: int | None = None) -> None:
        """Say that the file has left by a sink: COMPLETE. Say it once for every sink it left by.

        Args:
            data_sink: the flow it left by.
            size_bytes: how much went there, for backends; no part of the record.

        Raises:
            AdmissionError: the name is empty, or the size below 0.
        """
        self._require_going_on("egress()", "egress before the end, or on a branch() opened before it")
        sink = name_of("data_sink", data_sink)
        if size_bytes is not None and size_bytes < 0:
            raise AdmissionError("size_bytes", f"is {size_bytes}", "give how many bytes went to the sink")
        self._end(FinalState.COMPLETE, data_sink=sink, size_bytes=size_bytes)
        self._egressed = True

    def filter(self, reason: str) -> None:
        """Say that the file goes no further on purpose: FILTERED, with the annotation `filteredCause`."""
        self._require_open("filter()", "filter before the end, or on a branch() of the file")
        self._end(FinalState.FILTERED, {"filteredCause": text_of(reason)})
        self._ended = "filter()"

    def error(self, cause: BaseException | str) -> None:
        """Say that the file failed: ERROR, with the cause's telling part as the annotation `errorCause`.

        The whole cause, with the stack trace of an exception, goes into OpenLineage's `errorMessage` facet.
        """
        self._require_going_on(
            "error()", "say the error first, or track what failed as a branch() of its own"
        )
        failure = failure_of(cause)
        self._end(FinalState.ERROR, {"errorCause": telling(failure.message)}, failure=failure)
        self._ended = "error()"
        if self._is_branch and isinstance(cause, BaseException):
            self._run.recorded.append(cause)

    def cancel(self) -> None:
        """Say that somebody stopped the work on this file: CANCELLED."""
        self._require_going_on("cancel()", "cancel before the end")
        self._end(FinalState.CANCELLED)
        self._ended = "cancel()"

    def split(
        self,
        filenames: Iterable[str],
        *,
        data_source: str | None = None,
        data_sinks: Iterable[str] = (),
        annotations: Mapping[str, object] | None = None,
    ) -> list[TrackedFile]:
        """Say that the file was split into others: SPLIT. The children begin as the parent ends.

        The children are recorded first, so that a parent that is SPLIT always has its children. If that fails
        half-way, splitting again makes new ones.

        Args:
            filenames: the children's names, at least one.
            data_source: the children's; None: the parent's.
            data_sinks: the flows that files of that data source leave by, as for `Tracker.file`.
            annotations: the children's; None: a copy of the parent's on this path.

        Returns:
            The children, in the same order, to be used like files of `Tracker.file`.

        Raises:
            AdmissionError: no names, the data source or a data sink is empty, or an annotation is None.
        """
        self._require_open("split()", "split before the end, or on a branch() of the file")
        names = [text_of(name) for name in list_of("filenames", filenames)]
        if not names:
            raise AdmissionError(
                "filenames", "is empty", "call filter(reason) if there was nothing in the file"
            )
        source = self.data_source if data_source is None else name_of("data_source", data_source)
        known = self._annotations if annotations is None else annotations_of(annotations)
        self._run.sinks.learn(source, sinks_of(data_sinks))
        instant_ms = self._run.next_instant_ms()
        children = [self._run.child(name, source, instant_ms) for name in names]
        for child in children:
            child.tell(PathState(at_ms=instant_ms, annotations=known))
        self._end(FinalState.SPLIT, at_ms=instant_ms)
        self._ended = "split()"
        return [TrackedFile(child, known) for child in children]

    def __enter__(self) -> Self:
        self._require_going_on("a block", "say the ends of a path inside its block")
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
                self._run.recorded.clear()
            elif raised is not None:
                self._run.recorded.append(raised)

    def __repr__(self) -> str:
        return f"<file {self.filename!r} {self.did}>"

    def _fail(self, raised: BaseException) -> None:
        if self._ended is not None or any(raised is one for one in self._run.recorded):
            return
        try:
            if isinstance(raised, (Exception, SystemExit)):
                self.error(raised)
            else:
                self.cancel()
        except Exception as lost:  # noqa: BLE001 - the caller's own exception must reach it
            raised.add_note(f"Waybill could not keep how {self!r} ended: {lost}")

    def _end(
        self,
        state: FinalState,
        cause: Mapping[str, str] | None = None,
        *,
        data_sink: str | None = None,
        size_bytes: int | None = None,
        failure: Failure | None = None,
        at_ms: int | None = None,
    ) -> None:
        self._run.tell(
            PathState(
                final_state=state,
                at_ms=at_ms or self._run.next_instant_ms(),
                transforms=tuple(self._transforms),
                annotations=self._annotations | dict(cause or {}),
                data_sink=data_sink,
                size_bytes=size_bytes,
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
