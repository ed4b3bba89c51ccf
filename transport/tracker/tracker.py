"""The Tracker: a Python program reports each file's progress as it happens.

    tracker = Tracker()
    with tracker.file("orders.csv.gz", data_source="sftp-in") as f:
        with f.transform("decompress"):
            ...
        f.egress("warehouse")

The beginning of a file and each end of a path become OpenLineage run events. They are handed to the client
before the call returns, so they survive if the process is killed. The rules:

- `Tracker.file` and `split` record that a file has begun; `with` only makes sure that it ends.
- `egress` may be called several times: each call makes a record, with the same transforms. `branch` begins
  another path, with its own copy of the transforms and annotations so far.
- `filter`, `error`, `cancel` and `split` end a path permanently. After `egress` a path can only `egress`
  again, `branch`, or fail (`error`, `cancel`). Any other call raises `TrackerStateError` and records nothing.
- If a block ends without any of these calls, the path is COMPLETE without a sink, unless it has branches.
- An exception that leaves a block reaches the caller unchanged. It makes the path ERROR, or CANCELLED if it
  only stops the work: Ctrl-C, a closed generator or a cancelled task, none of which is an `Exception`.
  (`SystemExit` is ERROR.) The exception is recorded once: not for a path that has already ended, and not
  again for the file whose branch it left.
- The ends of one file are at least 1 ms apart, because two ends with the same sink, transforms and instant
  are the same record.
- `Tracker.join` records that several files became one. A file that goes on ends as COMPLETE without a sink;
  one that has left by a sink, or whose block has ended, keeps the records that it has.
- `Tracker.adopt` goes on with a file that another process has begun, as if it had begun here.
- A child of `split` that is never used has begun but has no record: nothing more is known about it.

Many threads may share one Tracker, but a path belongs to one thread at a time.
"""

from __future__ import annotations

import os
import warnings
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final, NamedTuple, Self, TypeVar

from msgspec.structs import replace

from waybill.facets import FinalState, parents_of
from waybill.facets.context import find_around
from waybill.facets.event import DeltaFile

from ..config import Settings
from ..errors import AdmissionError, FingerprintError, SettingsError, TrackerStateError
from ..fingerprints import fingerprint_of
from .datasets import columns_of
from .duplicates import OnDuplicate, check_options, original_of, tell_duplicate, transport_of
from .file_run import (
    JOINED_MAX,
    Content,
    FileIdentity,
    FileRun,
    KnownSinks,
    OfOneProcess,
    PathState,
    annotations_of,
    did_of,
    failure_of,
    filename_of,
    instant_ms_of,
    list_of,
    name_of,
    now_ms,
    parent_of,
    sinks_of,
    text_of,
    written_by_sink,
)
from .rows import TrackedRows, check_sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from contextlib import AbstractContextManager
    from types import TracebackType

    from openlineage.client import OpenLineageClient
    from openlineage.client.event_v2 import RunEvent

    from .datasets import Dataset, DatasetName, DatasetSchema
    from .file_run import DataSinks, Failure


_Row = TypeVar("_Row")

_ORIGIN: Final = "Tracker"
"""The origin that messages name for a value passed to the Tracker."""


_JOINED: Final = "join()"
_LEFT: Final = "the end of its block"
"""The ends of a path that do not keep its file from being joined."""


class Tracker(OfOneProcess):
    """Tracks files, each from `file` to its ends.

    Args:
        client: receives the events; the caller closes it. None: the Tracker's own client over
            `WaybillTransport`.
        system_name: the instance's name in the records; None: the setting of that name.
        settings: for the client and the system name; None: those that `Settings.load` finds.
        **given: more settings by name, which override all others, for example ``home="/var/lib/waybill"`` or
            ``provenance_enabled=True``. Only for the Tracker's own client.

    Raises:
        SettingsError: a setting cannot be used, or would have no effect.
        JournalError: the home cannot be opened.
        AdmissionError: the system name is empty.
    """

    def __init__(
        self,
        client: OpenLineageClient | None = None,
        *,
        system_name: str | None = None,
        settings: Settings | None = None,
        **given: object,
    ) -> None:
        if given and not (client is None and settings is None):
            name = next(iter(given))
            what = "would have no effect here; put it into the `settings` or the client that you pass in"
            raise SettingsError(
                name, Settings.load(given, origin=_ORIGIN, goes_on=True).shown(name), _ORIGIN, what
            )
        settings = Settings.load(given, origin=_ORIGIN, goes_on=True) if settings is None else settings
        self.system_name: Final = name_of(
            "system_name", settings.system_name if system_name is None else system_name
        )
        self._fingerprint_max_bytes: Final = settings.fingerprint_max_bytes
        self._owns_client: Final = client is None
        self._sinks: Final = KnownSinks()
        if client is None:
            from openlineage.client import OpenLineageClient

            from ..transport import WaybillConfig, WaybillTransport

            client = OpenLineageClient(transport=WaybillTransport(WaybillConfig(settings)))
        self._client: Final = client
        self._transport: Final = transport_of(client)
        self._around: Final = find_around(os.environ)

    def file(
        self,
        filename: str | os.PathLike[str] | None = None,
        *,
        path: str | os.PathLike[str] | None = None,
        data_source: str,
        data_sinks: DataSinks | None = None,
        annotations: Mapping[str, object] | None = None,
        fingerprint: bool = False,
        on_duplicate: OnDuplicate = "record",
        force: bool = False,
    ) -> TrackedFile:
        """Record that a file has arrived; use the returned file in a `with`.

        With `fingerprint`, the file's content is read and its fingerprint recorded, and the home is asked for
        the first file with the same content: `TrackedFile.duplicate_of`. Of several programs that begin files
        with the same content at the same moment, exactly one is first.

        Args:
            filename: its name or path, kept as given; None: the last part of `path`.
            path: where its content can be read; only needed for the fingerprint.
            data_source: the flow that it arrived by.
            data_sinks: the datasets that the sinks of this data source write, by the sinks' names, as
                `TrackedFile.egress` takes them.
            annotations: what is already known about it, as for `TrackedFile.annotate`.
            fingerprint: whether to take the fingerprint of its content, as `fingerprint_of` does.
            on_duplicate: what to do if the home knows a file with the same content: only "record" it, "warn"
                by a Python warning, or "raise" and record nothing.
            force: process it even if its content is known: `on_duplicate` does not apply, and the event says
                that it was forced.

        Raises:
            AdmissionError: the data source, a data sink or its dataset is empty, or an annotation is None; or
                the name, or what is needed for the fingerprint, is missing.
            DuplicateFileError: the content is known, and `on_duplicate` is "raise". If another program began
                the other file at the same moment, this one may be recorded as FILTERED.
            FingerprintError: a compressed file is damaged, or too large. The file is recorded as ERROR.
            OSError: the file cannot be read. Nothing is recorded.
            JournalError: the event could not be kept, or the journal not be asked.
        """
        known, sinks = annotations_of(annotations), sinks_of(data_sinks)
        identity = FileIdentity(
            system_name=self.system_name,
            data_source=name_of("data_source", data_source),
            filename=_filename_for(filename, path),
            created_ms=now_ms(),
        )
        check_options(on_duplicate, fingerprint=fingerprint, force=force)
        if not fingerprint:
            return self._begin(identity, sinks, known)
        if path is None:
            raise AdmissionError("path", "is missing", "give the path that the content can be read from")
        if self._transport is None and on_duplicate != "record":
            what = f"is {on_duplicate!r}, but the client keeps no events in a home"
            raise AdmissionError("on_duplicate", what, "give a client with a WaybillTransport, or none")
        try:
            found = fingerprint_of(path, max_bytes=self._fingerprint_max_bytes)
        except FingerprintError as error:
            self._begin(identity, sinks, known).error(error)
            raise
        identity = replace(identity, content=Content(found, force))
        action: OnDuplicate = "record" if force else on_duplicate
        earlier = None if action == "record" else original_of(identity, self._transport)
        if earlier is not None:
            tell_duplicate(identity, earlier, action)
        file = self._begin(identity, sinks, known)
        original = original_of(identity, self._transport)
        file._run.duplicate_of = original  # noqa: SLF001 - it is made here
        if original is not None and earlier is None:  # another program was first at the same moment
            if action == "raise":
                file.filter(f"the same content as {original}")
            tell_duplicate(identity, original, action)
        return file

    def adopt(
        self,
        did: str,
        filename: str | os.PathLike[str] | None = None,
        *,
        data_source: str | None = None,
        data_sinks: DataSinks | None = None,
        parents: Iterable[TrackedPath | str] | None = None,
        transforms: Iterable[str] = (),
        annotations: Mapping[str, object] | None = None,
    ) -> TrackedFile:
        """Go on with a file that another process has begun; use the returned file in a ``with``.

        The other process begins it without a ``with``, passes its did on, and makes no more calls for it. The
        event of the adoption is RUNNING, and the file's ends complete the run that the other process began.

        What is not given is taken from the file's last event, where the Tracker's own home accepted it not
        long ago (among its newest 100,000 entries); the time of its beginning always is. Otherwise the file
        counts as begun now, and its name and its data source have to be given.

        Args:
            did: the file.
            filename: its name or path.
            data_source: the flow that it arrived by.
            data_sinks: the datasets that the sinks of that data source write, as for `file`.
            parents: the files that it came from, as for `join`.
            transforms: the flows that it has passed already; no event has said them yet.
            annotations: what is known about it.

        Raises:
            AdmissionError: the did is no UUID, or name or data source are neither given nor found; or as for
                `join`.
            JournalError: the event could not be kept, or the journal cannot be read.
        """
        did = did_of("did", did)
        begun = self._begun(did) or _Begun(DeltaFile(did=did), ())
        data_source = begun.facet.data_source if data_source is None else data_source
        filename = begun.facet.filename if filename is None else filename
        if filename is None or data_source is None:
            missing = "filename" if filename is None else "data_source"
            raise AdmissionError(missing, f"of {did} is not known in this home", "give it to adopt()")
        came_from = begun.parents if parents is None else self._parents("parents", list(parents))
        identity = FileIdentity(
            did=did,
            parent=came_from[0] if came_from else None,
            joined=came_from if len(came_from) > 1 else (),
            system_name=self.system_name,
            data_source=name_of("data_source", data_source),
            filename=filename_of(filename),
            created_ms=instant_ms_of(begun.facet.created) or now_ms(),
        )
        given = annotations_of(begun.facet.annotations if annotations is None else annotations)
        passed = [name_of("transforms", name) for name in list_of("transforms", transforms)]
        self._sinks.learn(identity.data_source, sinks_of(data_sinks))
        run = FileRun(identity, self.emit, self._sinks, self._transport)
        run.tell(PathState(at_ms=run.next_instant_ms(), annotations=given, is_adopted=True))
        file = TrackedFile(run, given)
        file._transforms.extend(passed)  # noqa: SLF001 - as if they were called there
        return file

    def join(
        self,
        files: Iterable[TrackedPath | str],
        filename: str | os.PathLike[str],
        *,
        data_source: str,
        data_sinks: DataSinks | None = None,
        annotations: Mapping[str, object] | None = None,
    ) -> TrackedFile:
        """Record that several files became one; use the returned file in a `with`.

        The new file is recorded first, so that no file ends for a join that is not known. Then each of the
        others that goes on ends as COMPLETE without a sink. If that fails halfway, joining again makes
        another new file.

        Args:
            files: those that were joined, 1 to 1,000, each once: files of any Tracker of this process, or
                the dids of others, for which nothing is recorded. The first is the `parent_did` in the
                records. A file may be joined again.
            filename: the new file's name or path.
            data_source: the new file's flow.
            data_sinks: the datasets that the sinks of that data source write, as for `file`.
            annotations: the new file's; it inherits none.

        Raises:
            AdmissionError: there are no files, too many, or one twice, or a did is no UUID; or as for `file`.
            TrackerStateError: a file has failed, or was filtered, cancelled or split.
            JournalError: an event could not be kept.
        """
        parents = list(files)
        known, sinks = annotations_of(annotations), sinks_of(data_sinks)
        joined = self._parents("files", parents)
        identity = FileIdentity(
            parent=joined[0],
            joined=joined,
            system_name=self.system_name,
            data_source=name_of("data_source", data_source),
            filename=filename_of(filename),
            created_ms=now_ms(),
        )
        file = self._begin(identity, sinks, known)
        for parent in parents:
            if not isinstance(parent, str):
                parent._blocking._end_joined()  # noqa: SLF001 - a join is a call on each file, too
        return file

    def rows(
        self,
        rows: Iterable[_Row],
        *,
        dataset: Callable[[_Row], DatasetName | None],
        job: str = "rows",
        written: bool = False,
        one_in: int = 1,
        run_each: bool = False,
    ) -> TrackedRows[_Row]:
        """Go through rows of which each decides which dataset is used, and record which were.

            for row in tracker.rows(rows, dataset=lambda row: row["url"], job="crawl"):
                ...

        All rows are one run. Its end names the 1,000 datasets that most rows use, each with the number of
        its rows, and its tags say how many rows and datasets there were. Use it in a ``with`` if an exception
        within the loop is to be recorded as its failure.

        Args:
            rows: the rows.
            dataset: gives a row's dataset, as a path, a URI, or a namespace and a name; None: it uses none.
            job: the name of the run's job; its namespace is the system name.
            written: whether the datasets are written; else they are read.
            one_in: look only at the first of so many rows; all of them are counted.
            run_each: whether each row that is looked at is a run of its own, too.

        Raises:
            AdmissionError: the job's name is empty, or `one_in` is less than 1.
            JournalError: an event could not be kept, from the loop.
        """
        check_sample(one_in)
        return TrackedRows(
            self.emit,
            rows,
            dataset=dataset,
            job=(self.system_name, name_of("job", job)),
            written=written,
            one_in=one_in,
            run_each=run_each,
        )

    def emit(self, event: RunEvent) -> None:
        """Give an event to the client; a run without a parent is below the run around this program."""
        facets = event.run.facets
        if self._around is not None and facets is not None and "parent" not in facets:
            facets["parent"] = parent_of(self._around)
        self._client.emit(event)

    def _parents(self, what: str, files: list[TrackedPath | str]) -> tuple[FileIdentity, ...]:
        """Check the files that another came from, and return their identities without their own parents."""
        if not files:
            raise AdmissionError(what, "is empty", "give at least one file, or begin one with file()")
        if len(files) > JOINED_MAX:
            way_out = "join them in groups, and then the joined files"
            raise AdmissionError(what, f"has {len(files):,} files, more than {JOINED_MAX:,}", way_out)
        known: dict[str, FileIdentity] = {}
        for file in files:
            did = did_of(what, file) if isinstance(file, str) else file.did
            if did in known:
                raise AdmissionError(what, f"has {file!r} twice", "give each file once, by one of its paths")
            if isinstance(file, str):
                known[did] = self._identity_of(did)
            else:
                file._blocking._require_joinable()  # noqa: SLF001 - as above
                known[did] = replace(file._run.identity, parent=None, joined=())  # noqa: SLF001 - as above
        return tuple(known.values())

    def _identity_of(self, did: str) -> FileIdentity:
        """A file of which only the did is known here."""
        return FileIdentity(
            did=did, system_name=self.system_name, data_source="", filename="", created_ms=now_ms()
        )

    def _begun(self, did: str) -> _Begun | None:
        """What the Tracker's own home knows of a file that another process has begun."""
        event = None if self._transport is None else self._transport.last_said_of(did)
        if event is None or event.run.facets is None or event.run.facets.delta_file is None:
            return None
        facet = event.run.facets.delta_file
        parents = [self._identity_of(parent) for parent in parents_of(event)]
        if event.run.facets.parent is not None and parents:
            job = event.run.facets.parent.job
            parents[0] = replace(parents[0], system_name=job.namespace, data_source=job.name)
        return _Begun(facet, tuple(parents))

    def _begin(self, identity: FileIdentity, sinks: dict[str, Dataset], known: dict[str, str]) -> TrackedFile:
        self._sinks.learn(identity.data_source, sinks)
        run = FileRun(identity, self.emit, self._sinks, self._transport)
        run.tell(PathState(at_ms=identity.created_ms, annotations=known))
        return TrackedFile(run, known)

    def close(self, timeout: float = -1.0) -> bool:
        """Close the client if it is the Tracker's own; return whether every event is durable.

        Waits at most `timeout` seconds; -1: as long as it takes.
        """
        return self._client.close(timeout) if self._owns_client else True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _filename_for(filename: str | os.PathLike[str] | None, path: str | os.PathLike[str] | None) -> str:
    if filename is not None:
        return filename_of(filename)
    if path is None:
        raise AdmissionError("filename", "is missing", "give the name of the file, or its path")
    return filename_of(os.path.basename(path))  # noqa: PTH119 - the path may be text


class _Begun(NamedTuple):
    """What the last event of a file says of it."""

    facet: DeltaFile
    parents: tuple[FileIdentity, ...]


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
