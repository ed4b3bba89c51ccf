"""The Tracker for asyncio: what waits for the disk does so in a thread, so that the event loop goes on.

    async with AsyncTracker() as tracker, await tracker.file("orders.csv.gz", data_source="sftp-in") as f:
        with f.transform("decompress"):
            ...
        await f.egress("warehouse")

The rules are those of the `Tracker`; a path belongs to one task at a time. A task that is cancelled while an
event is kept goes on as cancelled once that is done, so that its path can tell of its end.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, ParamSpec, Self, TypeVar

from waybill.transport.tracker import TrackedFile, Tracker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from contextlib import AbstractContextManager
    from types import TracebackType

    from openlineage.client import OpenLineageClient

    from waybill.transport.config import Settings

_P = ParamSpec("_P")
_T = TypeVar("_T")


class AsyncTracker:
    """Tracks files as `Tracker` does, which has the same arguments; opened and closed by ``async with``.

    Raises:
        SettingsError: a setting cannot be used; as the others, on entering.
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
        self._open = lambda: Tracker(client, system_name=system_name, settings=settings)

    async def __aenter__(self) -> Self:
        self._tracker = await _in_thread(self._open)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        await _in_thread(self._tracker.close)

    async def file(
        self,
        filename: str,
        *,
        data_source: str,
        data_sinks: Iterable[str] = (),
        annotations: Mapping[str, object] | None = None,
    ) -> AsyncTrackedFile:
        """Say that a file has come in, as `Tracker.file`; use what is returned in an ``async with``."""
        return AsyncTrackedFile(
            await _in_thread(
                self._tracker.file,
                filename,
                data_source=data_source,
                data_sinks=data_sinks,
                annotations=annotations,
            )
        )


class AsyncTrackedFile:
    """One file on one path, as `TrackedFile`; made by `AsyncTracker.file`, `split` and `branch`."""

    def __init__(self, file: TrackedFile) -> None:
        self._file = file

    @property
    def did(self) -> str:
        """The file's identity, the same on all its paths."""
        return self._file.did

    @property
    def parent_did(self) -> str | None:
        """The file it was split from."""
        return self._file.parent_did

    @property
    def filename(self) -> str:
        """Its name."""
        return self._file.filename

    @property
    def data_source(self) -> str:
        """The flow it came in by."""
        return self._file.data_source

    def annotate(self, annotations: Mapping[str, object] | None = None, /, **more: object) -> None:
        """Note something about the file on this path; it is kept with the path's end."""
        self._file.annotate(annotations, **more)

    def transform(self, name: str) -> AbstractContextManager[None]:
        """Pass through a flow, in a plain ``with``; it is kept with the path's end."""
        return self._file.transform(name)

    def branch(self) -> AsyncTrackedFile:
        """Begin a further path of the same file, as `TrackedFile.branch`."""
        return AsyncTrackedFile(self._file.branch())

    async def egress(self, data_sink: str, *, size_bytes: int | None = None) -> None:
        """Say that the file has left by a sink, as `TrackedFile.egress`."""
        await _in_thread(self._file.egress, data_sink, size_bytes=size_bytes)

    async def filter(self, reason: str) -> None:
        """Say that the file goes no further on purpose, as `TrackedFile.filter`."""
        await _in_thread(self._file.filter, reason)

    async def error(self, cause: BaseException | str) -> None:
        """Say that the file failed, as `TrackedFile.error`."""
        await _in_thread(self._file.error, cause)

    async def cancel(self) -> None:
        """Say that somebody stopped the work on this file, as `TrackedFile.cancel`."""
        await _in_thread(self._file.cancel)

    async def split(
        self,
        filenames: Iterable[str],
        *,
        data_source: str | None = None,
        data_sinks: Iterable[str] = (),
        annotations: Mapping[str, object] | None = None,
    ) -> list[AsyncTrackedFile]:
        """Say that the file was split into others, as `TrackedFile.split`."""
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


async def _in_thread(work: Callable[_P, _T], *arguments: _P.args, **named: _P.kwargs) -> _T:
    """Do this in a thread, and to its end: a task that is cancelled must not meet it still at work."""
    working = asyncio.ensure_future(asyncio.to_thread(work, *arguments, **named))
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        while not working.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({working})
        if not working.cancelled():
            working.exception()  # is not told: the task ends as cancelled
        raise
