"""The paths of a tracked file: what a program calls as the file goes on, until each path ends."""

from __future__ import annotations

import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from waybill.facets import FinalState

from ..errors import AdmissionError, TrackerStateError
from .datasets import columns_of
from .file_run import (
    FileRun,
    OfOneProcess,
    PathState,
    annotations_of,
    failure_of,
    filename_of,
    list_of,
    name_of,
    sinks_of,
    text_of,
    written_by_sink,
)

if TYPE_CHECKING:
    from .datasets import Dataset, DatasetName, DatasetSchema
    from .file_run import DataSinks, Failure


_JOINED: Final = "join()"
_LEFT: Final = "the end of its block"
"""The ends of a path that do not keep its file from being joined."""


class _Block:
    """The block of a transform: its beginning is noted before the body runs; its end has no effect."""

    def __init__(self, name: str, note: Callable[[], None]) -> None:
        self._name: Final = name
        self._note: Final = note
        self._entered = False

    def __enter__(self) -> None:
        self._entered = True
        self._note()

    def __exit__(self, *_: object) -> None:
        pass

    def __del__(self) -> None:
        if not self._entered:
            call = f"transform({self._name!r})"
            what = f"{call} is recorded, but its block was never entered; write `with f.{call}:`"
            warnings.warn(what, RuntimeWarning, stacklevel=2)


class TrackedPath(OfOneProcess, ABC):
    """What is known of a file on one path, whether its calls wait for the disk or are awaited."""

    def __init__(self, run: FileRun) -> None:
        self._run: Final = run

    @property
    @abstractmethod
    def _blocking(self) -> TrackedFile:
        """The path, with the calls that wait for the disk."""

    @property
    def did(self) -> str:
        """The file's identity, the same on all its paths."""
        return self._run.identity.did

    @property
    def parent_did(self) -> str | None:
        """The did of the file that it was split from, or of the first that it was joined from."""
        parent = self._run.identity.parent
        return parent.did if parent else None

    @property
    def parent_dids(self) -> tuple[str, ...]:
        """The dids of all files that it was split or joined from, `parent_did` first."""
        identity = self._run.identity
        parents = identity.joined or ((identity.parent,) if identity.parent else ())
        return tuple(parent.did for parent in parents)

    @property
    def filename(self) -> str:
        """The file's name."""
        return self._run.identity.filename

    @property
    def data_source(self) -> str:
        """The flow that it arrived by."""
        return self._run.identity.data_source

    @property
    def duplicate_of(self) -> str | None:
        """The did of the first file with the same content that the home knew when this one began.

        None if this file was the first, or its fingerprint was not asked for, or the client has no home.
        """
        return self._run.duplicate_of

    @property
    def fingerprint(self) -> str | None:
        """The fingerprint of its content; None if that was not asked for."""
        content = self._run.identity.content
        return None if content is None else str(content.fingerprint)

    def __repr__(self) -> str:
        return f"<file {self.filename!r} {self.did}>"


class TrackedFile(TrackedPath):
    """One file on one path; made by `Tracker.file`, `Tracker.join`, `split` and `branch`.

    Use it in a `with`, which makes sure that the path ends. Calls after the path has ended raise
    `TrackerStateError`; the rules are at the top of this module.

    Every call that ends a path raises `JournalError` if the end could not be kept. Then the path has not
    ended, and the call may be repeated.
    """

    def __init__(
        self, run: FileRun, annotations: Mapping[str, str], transforms: Iterable[str] | None = None
    ) -> None:
        super().__init__(run)
        # Only a branch is given transforms, even if the list is empty.
        self._annotations: Final = dict(annotations)
        self._transforms: Final = list(transforms or ())
        self._is_branch: Final = transforms is not None
        self._ended: str | None = None
        self._egressed = False
        self._branched = False

    @property
    def _blocking(self) -> TrackedFile:
        return self

    def annotate(self, annotations: Mapping[str, object] | None = None, /, **more: object) -> None:
        """Add annotations to the file on this path; a later value replaces an earlier one.

        Values are stored as strings: ``str(value)``, or ``true`` or ``false`` for a bool. A key that the
        setting `provenance_annotations_allowed` does not name reaches no record; the log warns of it once.

        Raises:
            AdmissionError: a value is None.
        """
        self._require_open(
            "annotate()", "annotate before the path ends, so that its record has the annotation"
        )
        new = annotations_of(annotations) | annotations_of(more)
        self._run.check_keys(new)
        self._annotations.update(new)

    def transform(self, name: str) -> AbstractContextManager[None]:
        """Add a flow to the path, in a ``with``. It stays there even if an exception leaves the block.

        A call without ``with`` adds it too, and warns that its block was never entered. The home notes it
        before the block's body runs: if the program is killed, the file's CANCELLED names it.

        Raises:
            AdmissionError: the name is empty.
        """
        return self._begin_transform(name, waits=True)

    def _begin_transform(self, name: str, *, waits: bool) -> _Block:
        """Add a flow to the path; when its block is entered, it is noted."""
        self._require_open("transform()", "transform before the path ends, or on a branch() of the file")
        self._transforms.append(name_of("transform", name))
        begun = tuple(self._transforms)
        return _Block(begun[-1], lambda: self._run.note_transforms(begun, waits=waits))

    def branch(self) -> TrackedFile:
        """Begin another path of the same file, with a copy of this one's transforms and annotations."""
        self._require_going_on("branch()", "branch before the path ends")
        self._branched = True
        return TrackedFile(self._run, self._annotations, self._transforms)

    def egress(
        self,
        data_sink: str,
        *,
        dataset: DatasetName | None = None,
        schema: DatasetSchema | None = None,
        size_bytes: int | None = None,
    ) -> None:
        """Record that the file has left by a sink: COMPLETE. Call it once for every sink.

        Args:
            data_sink: the flow that it left by.
            dataset: the dataset that the sink writes, as a whole: a path, a URI, or a namespace and a name.
                Backends then draw the sink as that dataset.
            schema: the dataset's columns: a dict of types by name, a ``pyarrow.Schema`` or Spark's
                ``StructType``; at most 1,000 columns and 16 KiB.
            size_bytes: how many bytes went there.

        The dataset, its schema and the size are for backends; they are not part of the record.

        Raises:
            AdmissionError: the name or the dataset is empty, the schema too large, or the size negative.
        """
        self._require_going_on("egress()", "egress before the path ends, or on a branch() made before that")
        sink = name_of("data_sink", data_sink)
        columns = [] if schema is None else columns_of(schema)
        if size_bytes is not None and size_bytes < 0:
            raise AdmissionError("size_bytes", f"is {size_bytes}", "give how many bytes went to the sink")
        self._end(
            FinalState.COMPLETE,
            data_sink=sink,
            dataset=None if dataset is None else written_by_sink(dataset),
            columns=tuple((text_of(column), text_of(kind)) for column, kind in columns),
            size_bytes=size_bytes,
        )
        self._egressed = True

    def filter(self, reason: str) -> None:
        """Record that the file was dropped on purpose: FILTERED, with the annotation `filteredCause`."""
        self._require_open("filter()", "filter before the path ends, or on a branch() of the file")
        self._end(FinalState.FILTERED, {"filteredCause": text_of(reason)})
        self._ended = "filter()"

    def error(self, cause: BaseException | str) -> None:
        """Record that the file failed: ERROR. The gist of the cause becomes its record's `errorCause`.

        The whole cause, including an exception's stack trace, goes into OpenLineage's `errorMessage` facet.
        The gist is derived from what `redact` leaves of that.
        """
        self._require_going_on("error()", "call error() first, or track the failing part as its own branch()")
        self._end(FinalState.ERROR, failure=failure_of(cause))
        self._ended = "error()"
        if self._is_branch and isinstance(cause, BaseException):
            self._run.recorded.append(cause)

    def cancel(self) -> None:
        """Record that the work on this file was stopped: CANCELLED."""
        self._require_going_on("cancel()", "cancel before the path ends")
        self._end(FinalState.CANCELLED)
        self._ended = "cancel()"

    def split(
        self,
        filenames: Iterable[str | os.PathLike[str]],
        *,
        data_source: str | None = None,
        data_sinks: DataSinks | None = None,
        annotations: Mapping[str, object] | None = None,
    ) -> list[TrackedFile]:
        """Record that the file was split into others: SPLIT. The children begin when the parent ends.

        The children are recorded first, so that a SPLIT parent always has its children. If that fails
        halfway, splitting again makes new ones.

        Args:
            filenames: the children's names or paths, at least one.
            data_source: the children's; None: the parent's.
            data_sinks: the datasets that the sinks of that data source write, as for `Tracker.file`.
            annotations: the children's; None: a copy of the parent's on this path.

        Returns:
            The children, in the same order, to be used like files of `Tracker.file`.

        Raises:
            AdmissionError: there are no names, the data source or a data sink is empty, or an annotation is
                None.
        """
        self._require_open("split()", "split before the path ends, or on a branch() of the file")
        names = [filename_of(name) for name in list_of("filenames", filenames)]
        if not names:
            raise AdmissionError("filenames", "is empty", "call filter(reason) if the file contained nothing")
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
        self._require_going_on("a block", "end a path inside its block")
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
            self._ended = self._ended or _LEFT
            if not self._is_branch:
                self._run.recorded.clear()
            elif raised is not None:
                self._run.recorded.append(raised)

    def _require_joinable(self) -> None:
        if self._ended not in (None, _JOINED, _LEFT):
            way_out = "join only files that came through, or a branch() made before that"
            raise TrackerStateError(repr(self), "join()", self._ended, way_out)

    def _end_joined(self) -> None:
        if self._ended is None:
            if not self._egressed:
                self._end(FinalState.COMPLETE)
            self._ended = _JOINED

    def _fail(self, raised: BaseException) -> None:
        if self._ended is not None or any(raised is one for one in self._run.recorded):
            return
        try:
            if isinstance(raised, (Exception, SystemExit)):
                self.error(raised)
            else:
                self.cancel()
        except Exception as lost:  # noqa: BLE001 - the caller's own exception must reach it
            raised.add_note(f"Waybill could not record the end of {self!r}: {lost}")

    def _end(
        self,
        state: FinalState,
        cause: Mapping[str, str] | None = None,
        *,
        data_sink: str | None = None,
        dataset: Dataset | None = None,
        columns: tuple[tuple[str, str], ...] = (),
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
                dataset=dataset,
                columns=columns,
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
