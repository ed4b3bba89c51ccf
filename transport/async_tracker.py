"""The Tracker for asyncio: calls that wait for the disk run in a thread, so the event loop is not blocked.

    async with AsyncTracker() as tracker, await tracker.file("orders.csv.gz", data_source="sftp-in") as f:
        with f.transform("decompress"):
            ...
        await f.egress("warehouse")

The rules are those of the `Tracker`; a path belongs to one task at a time. If a task is cancelled while an
event is being kept, the cancellation waits until that is done, so that the path can record its end.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, ParamSpec, Self, TypeVar

from .tracker import TrackedFile, Tracker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from contextlib import AbstractContextManager
    from os import PathLike
    from types import TracebackType

    from openlineage.client import OpenLineageClient

    from .config import Settings
    from .tracker.datasets import DatasetName, DatasetSchema
    from .tracker.duplicates import OnDuplicate
    from .tracker.file_run import DataSinks

_P = ParamSpec("_P")
_T = TypeVar("_T")


class AsyncTracker:
    """Tracks files as `Tracker` does, with the same arguments; opened and closed by ``async with``.

    Raises:
        SettingsError: a setting cannot be used. All errors are raised on entering.
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
        self._open = lambda: Tracker(client, system_name=system_name, settings=settings, **given)

    async def __aenter__(self) -> Self:
        self._tracker = await _in_thread(self._open)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        await _in_thread(self._tracker.close)

    async def file(
        self,
        filename: str | PathLike[str] | None = None,
        *,
        path: str | PathLike[str] | None = None,
        data_source: str,
        data_sinks: DataSinks = (),
        annotations: Mapping[str, object] | None = None,
        fingerprint: bool = False,
        on_duplicate: OnDuplicate = "record",
        force: bool = False,
    ) -> AsyncTrackedFile:
        """Record that a file has arrived, as `Tracker.file`; use the returned file in an ``async with``."""
        return AsyncTrackedFile(
            await _in_thread(
                self._tracker.file,
                filename,
                path=path,
                data_source=data_source,
                data_sinks=data_sinks,
                annotations=annotations,
                fingerprint=fingerprint,
                on_duplicate=on_duplicate,
                force=force,
            )
        )

    async def adopt(
        self,
        did: str,
        filename: str | PathLike[str] | None = None,
        *,
        data_source: str | None = None,
        data_sinks: DataSinks = (),
        parents: Iterable[AsyncTrackedFile | str] | None = None,
        transforms: Iterable[str] = (),
        annotations: Mapping[str, object] | None = None,
    ) -> AsyncTrackedFile:
        """Go on with a file that another process has begun, as `Tracker.adopt`."""
        return AsyncTrackedFile(
            await _in_thread(
                self._tracker.adopt,
                did,
                filename,
                data_source=data_source,
                data_sinks=data_sinks,
                parents=None if parents is None else _tracked(parents),
                transforms=transforms,
                annotations=annotations,
            )
        )

    async def join(
        self,
        files: Iterable[AsyncTrackedFile | str],
        filename: str | PathLike[str],
        *,
        data_source: str,
        data_sinks: DataSinks = (),
        annotations: Mapping[str, object] | None = None,
    ) -> AsyncTrackedFile:
        """Record that several files became one, as `Tracker.join`."""
        return AsyncTrackedFile(
            await _in_thread(
                self._tracker.join,
                _tracked(files),
                filename,
                data_source=data_source,
                data_sinks=data_sinks,
                annotations=annotations,
            )
        )


class AsyncTrackedFile:
    """One file on one path, as `TrackedFile`, and made by the same calls."""

    def __init__(self, file: TrackedFile) -> None:
        self._file = file

    @property
    def did(self) -> str:
        """The file's identity, the same on all its paths."""
        return self._file.did

    @property
    def parent_did(self) -> str | None:
        """The did of the file that it was split from, or of the first that it was joined from."""
        return self._file.parent_did

    @property
    def parent_dids(self) -> tuple[str, ...]:
        """The dids of all files that it was split or joined from, `parent_did` first."""
        return self._file.parent_dids

    @property
    def filename(self) -> str:
        """The file's name."""
        return self._file.filename

    @property
    def data_source(self) -> str:
        """The flow that it arrived by."""
        return self._file.data_source

    @property
    def duplicate_of(self) -> str | None:
        """The did of the first file with the same content, as `TrackedFile.duplicate_of`."""
        return self._file.duplicate_of

    @property
    def fingerprint(self) -> str | None:
        """The fingerprint of its content; None if that was not asked for."""
        return self._file.fingerprint

    def annotate(self, annotations: Mapping[str, object] | None = None, /, **more: object) -> None:
        """Add annotations to the file on this path; they are kept when the path ends."""
        self._file.annotate(annotations, **more)

    def transform(self, name: str) -> AbstractContextManager[None]:
        """Add a flow to the path, in a plain ``with``; it is kept when the path ends."""
        return self._file.transform(name)

    def branch(self) -> AsyncTrackedFile:
        """Begin another path of the same file, as `TrackedFile.branch`."""
        return AsyncTrackedFile(self._file.branch())

    async def egress(
        self,
        data_sink: str,
        *,
        dataset: DatasetName | None = None,
        schema: DatasetSchema | None = None,
        size_bytes: int | None = None,
    ) -> None:
        """Record that the file has left by a sink, as `TrackedFile.egress`."""
        await _in_thread(self._file.egress, data_sink, dataset=dataset, schema=schema, size_bytes=size_bytes)

    async def filter(self, reason: str) -> None:
        """Record that the file was dropped on purpose, as `TrackedFile.filter`."""
        await _in_thread(self._file.filter, reason)

    async def error(self, cause: BaseException | str) -> None:
        """Record that the file failed, as `TrackedFile.error`."""
        await _in_thread(self._file.error, cause)

    async def cancel(self) -> None:
        """Record that the work on this file was stopped, as `TrackedFile.cancel`."""
        await _in_thread(self._file.cancel)

    async def split(
        self,
        filenames: Iterable[str | PathLike[str]],
        *,
        data_source: str | None = None,
        data_sinks: DataSinks = (),
        annotations: Mapping[str, object] | None = None,
    ) -> list[AsyncTrackedFile]:
        """Record that the file was split into others, as `TrackedFile.split`."""
        children = await _in_thread(
            self._file.split,
            filenames,
            data_source=data_source,
            data_sinks=data_sinks,
            annotations=annotations,
        )
        return [AsyncTrackedFile(child) for child in children]

    async def __aenter__(self) -> Self:
        self._file.__enter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        await _in_thread(self._file.__exit__, kind, raised, trace)

    def __repr__(self) -> str:
        return repr(self._file)


def _tracked(files: Iterable[AsyncTrackedFile | str]) -> list[TrackedFile | str]:
    return [file if isinstance(file, str) else file._file for file in files]  # noqa: SLF001 - it wraps them


async def _in_thread(work: Callable[_P, _T], *arguments: _P.args, **named: _P.kwargs) -> _T:
    """Run this in a thread, to its end: it must not still be running when a cancelled task goes on."""
    working = asyncio.ensure_future(asyncio.to_thread(work, *arguments, **named))
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        while not working.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({working})
        if not working.cancelled():
            working.exception()  # not reported: the task ends as cancelled
        raise
