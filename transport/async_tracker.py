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
import functools
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, Self, TypeVar, overload

from .tracker import TrackedFile, TrackedPath, Tracker

if TYPE_CHECKING:
    from openlineage.client import OpenLineageClient

    from .config import Settings
    from .tracker.rows import TrackedRows

_P = ParamSpec("_P")
_T = TypeVar("_T")
_Blocking_co = TypeVar("_Blocking_co", covariant=True)


class _Waiting(Protocol[_Blocking_co]):
    """What stands for an object whose calls wait for the disk."""

    @property
    def _blocking(self) -> _Blocking_co: ...


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


@overload
def _awaited(
    method: Callable[Concatenate[_Blocking_co, _P], None],
) -> Callable[Concatenate[_Waiting[_Blocking_co], _P], Coroutine[Any, Any, None]]: ...
@overload
def _awaited(
    method: Callable[Concatenate[_Blocking_co, _P], TrackedFile],
) -> Callable[Concatenate[_Waiting[_Blocking_co], _P], Coroutine[Any, Any, AsyncTrackedFile]]: ...
@overload
def _awaited(
    method: Callable[Concatenate[_Blocking_co, _P], list[TrackedFile]],
) -> Callable[Concatenate[_Waiting[_Blocking_co], _P], Coroutine[Any, Any, list[AsyncTrackedFile]]]: ...
def _awaited(method: Callable[..., object]) -> Callable[..., Coroutine[Any, Any, object]]:
    """Make a method of the Tracker or of a file into one that is awaited; its files are awaited too."""

    @functools.wraps(method)
    async def call(self: _Waiting[Any], *arguments: object, **named: object) -> object:
        result = await _in_thread(method, self._blocking, *arguments, **named)
        if isinstance(result, list):
            return [AsyncTrackedFile(child) for child in result]
        return AsyncTrackedFile(result) if isinstance(result, TrackedFile) else result

    return call


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
        self._blocking: Tracker

    async def __aenter__(self) -> Self:
        self._blocking = await _in_thread(self._open)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        await _in_thread(self._blocking.close)

    file = _awaited(Tracker.file)
    """`Tracker.file`, awaited; use the returned file in an ``async with``."""
    adopt = _awaited(Tracker.adopt)
    """`Tracker.adopt`, awaited."""
    join = _awaited(Tracker.join)
    """`Tracker.join`, awaited."""
    emit = _awaited(Tracker.emit)
    """`Tracker.emit`, awaited."""

    @functools.wraps(Tracker.rows)
    def rows(self, *arguments: Any, **named: Any) -> TrackedRows[Any]:  # noqa: ANN401 - the Tracker's
        """`Tracker.rows`, for a plain loop: its beginning and its end wait for the disk."""
        return self._blocking.rows(*arguments, **named)


class AsyncTrackedFile(TrackedPath):
    """One file on one path, as `TrackedFile`, and made by the same calls."""

    def __init__(self, file: TrackedFile) -> None:
        super().__init__(file._run)  # noqa: SLF001 - it wraps the file
        self._file = file

    @property
    def _blocking(self) -> TrackedFile:
        return self._file

    def annotate(self, annotations: Mapping[str, object] | None = None, /, **more: object) -> None:
        """Add annotations to the file on this path; they are kept when the path ends."""
        self._file.annotate(annotations, **more)

    def transform(self, name: str) -> AbstractContextManager[None]:
        """Add a flow to the path, in a plain ``with``; it is kept when the path ends.

        It is noted by a thread, so the body may have begun a moment before the note is kept.
        """
        return self._file._begin_transform(name, waits=False)  # noqa: SLF001 - it wraps the file

    def branch(self) -> AsyncTrackedFile:
        """Begin another path of the same file, as `TrackedFile.branch`."""
        return AsyncTrackedFile(self._file.branch())

    egress = _awaited(TrackedFile.egress)
    """`TrackedFile.egress`, awaited."""
    filter = _awaited(TrackedFile.filter)
    """`TrackedFile.filter`, awaited."""
    error = _awaited(TrackedFile.error)
    """`TrackedFile.error`, awaited."""
    cancel = _awaited(TrackedFile.cancel)
    """`TrackedFile.cancel`, awaited."""
    split = _awaited(TrackedFile.split)
    """`TrackedFile.split`, awaited."""

    async def __aenter__(self) -> Self:
        self._file.__enter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        await _in_thread(self._file.__exit__, kind, raised, trace)
