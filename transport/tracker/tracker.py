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
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Final, NamedTuple, Self, TypeVar

from msgspec.structs import replace

from waybill.facets import parents_of
from waybill.facets.context import find_around
from waybill.facets.event import DeltaFile

from ..clock import SYSTEM_CLOCK
from ..config import Settings
from ..errors import AdmissionError, FingerprintError, SettingsError
from ..fingerprints import fingerprint_of
from .duplicates import OnDuplicate, check_options, home_of, original_of, tell_duplicate
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
    filename_of,
    instant_ms_of,
    list_of,
    name_of,
    parent_of,
    sinks_of,
)
from .rows import TrackedRows, check_sample
from .tracked_file import TrackedFile, TrackedPath

if TYPE_CHECKING:
    from openlineage.client import OpenLineageClient
    from openlineage.client.event_v2 import RunEvent

    from .datasets import Dataset, DatasetName
    from .file_run import DataSinks


_Row = TypeVar("_Row")

_ORIGIN: Final = "Tracker"
"""The origin that messages name for a value passed to the Tracker."""


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
            name = next(iter(given))  # it is not empty
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
        self._home: Final = home_of(client)
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
            created_ms=SYSTEM_CLOCK.now_ms(),
        )
        check_options(on_duplicate, fingerprint=fingerprint, force=force)
        if not fingerprint:
            return self._begin(identity, sinks, known)
        if path is None:
            raise AdmissionError("path", "is missing", "give the path that the content can be read from")
        if self._home is None and on_duplicate != "record":
            what = f"is {on_duplicate!r}, but the client keeps no events in a home"
            raise AdmissionError("on_duplicate", what, "give a client with a WaybillTransport, or none")
        try:
            found = fingerprint_of(path, max_bytes=self._fingerprint_max_bytes)
        except FingerprintError as error:
            self._begin(identity, sinks, known).error(error)
            raise
        identity = replace(identity, content=Content(found, force))
        action: OnDuplicate = "record" if force else on_duplicate
        earlier = None if action == "record" else original_of(identity, self._home)
        if earlier is not None:
            tell_duplicate(identity, earlier, action)
        file = self._begin(identity, sinks, known)
        original = original_of(identity, self._home)
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
            created_ms=instant_ms_of(begun.facet.created) or SYSTEM_CLOCK.now_ms(),
        )
        given = annotations_of(begun.facet.annotations if annotations is None else annotations)
        passed = [name_of("transforms", name) for name in list_of("transforms", transforms)]
        self._sinks.learn(identity.data_source, sinks_of(data_sinks))
        run = FileRun(identity, self.emit, self._sinks, self._home)
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
            created_ms=SYSTEM_CLOCK.now_ms(),
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
        now_ms, system_name = SYSTEM_CLOCK.now_ms(), self.system_name
        return FileIdentity(did=did, system_name=system_name, data_source="", filename="", created_ms=now_ms)

    def _begun(self, did: str) -> _Begun | None:
        """What the Tracker's own home knows of a file that another process has begun."""
        event = None if self._home is None else self._home.last_event_of(did)
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
        run = FileRun(identity, self.emit, self._sinks, self._home)
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
