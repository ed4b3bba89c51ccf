"""Bodies: read whole within limits of size, time and memory, and decompressed within the same size.

A body takes its own size of memory, and its decoded form takes more: a list of short texts ten times as
much. So the number of its values is limited too, and only one large body is processed at a time.
"""

from __future__ import annotations

import asyncio
import codecs
import io
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http import HTTPStatus
from math import ceil
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import parse_qsl

from waybill.transport.admission import MAX_BODY_BYTES

from .exchange import JSON, Problem, busy

if TYPE_CHECKING:
    from .exchange import Request

HELD_BYTES_MAX: Final = 3 * MAX_BODY_BYTES // 2
"""The maximum total size of the bodies of all open requests."""

BODY_TIMEOUT_S: Final = 30.0
"""How long a body may take to arrive."""

FORM_BYTES_MAX: Final = 64 * 2**10
"""The maximum size of a form."""

PACE_S: Final = 10.0
PACE_BYTES: Final = 160 * 2**10
"""In each such interval a body must bring this many bytes, or its rest."""

VALUES_MAX: Final = 6_000_000
"""How many values and member names a body may have, counted by its commas and colons."""

REFUSED_BYTES: Final = 1024
"""The share of the bodies' common memory that the reason for a refused element takes."""

_FOR_SMALL_BYTES: Final = 16 * 2**20
"""The part of that memory reserved for small bodies, so that large ones keep nobody else out."""
_SMALL_BYTES: Final = 2**20
_LARGE_BYTES: Final = 16 * 2**20
_INLINE_BYTES: Final = 64 * 2**10
"""A body up to this size is decompressed and checked by the event loop, a larger one by a thread."""
_GZIP_MEMBERS_MAX: Final = 64
"""The rest of a piece is copied after each member, so many members would take long."""
_WHOLE_BYTES: Final = 8 * 2**20
"""A body up to this size is read in one go, at half the cost."""
_PROMISED_BYTES_MAX: Final = 32 * 2**20
"""The total announced size of bodies that may be read in one go; further ones are read in parts."""
_PACKED_BYTES: Final = 64 * 2**10
_UNPACKED_BYTES: Final = 2**20
"""A body is decompressed in pieces, because otherwise it would be in memory twice."""
_ENCODINGS: Final = ("identity", "gzip", "zstd")

_LOOK_S: Final = 0.1

_T = TypeVar("_T")


class Bodies:
    """Reads the bodies of one server's requests; a body has `MAX_BODY_BYTES` at most, even decompressed."""

    def __init__(self, *, timeout_s: float = BODY_TIMEOUT_S, pace_s: float = PACE_S) -> None:
        self._timeout_s = timeout_s
        self._pace_s = pace_s
        self._large = asyncio.Lock()
        self._unpacking = asyncio.Lock()
        # One thread each, so that slow work delays neither the loop nor good bodies.
        self._checks = ThreadPoolExecutor(1, thread_name_prefix="waybill-checks")
        self._sorts = ThreadPoolExecutor(1, thread_name_prefix="waybill-sorts")
        self._promised_bytes = 0
        self._ends_s: dict[asyncio.Task[object] | None, float | None] = {}
        """When the time of each read in one go is up; None: it was."""
        self._timer: asyncio.TimerHandle | None = None
        self.held_bytes = 0

    async def read(self, request: Request) -> bytes:
        """The body of a request, decompressed; call `release` when the request is answered.

        Raises:
            Problem: its header says that it is not JSON, it is too large or too slow, or it is damaged.
        """
        content = await self._content(request)
        if len(content) > _LARGE_BYTES:
            await self._take_turn(request)
        # In JSON at most every other byte is a comma or a colon.
        if len(content) > 2 * VALUES_MAX and await self.checked(content, count_values) > VALUES_MAX:
            detail = f"the body has more than {VALUES_MAX:,} values and member names; send less at once"
            raise Problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail)
        # Some programs write the mark first; a reader of JSON may ignore it (RFC 8259, section 8.1).
        return content.removeprefix(codecs.BOM_UTF8)

    async def read_form(self, request: Request) -> dict[str, str]:
        """The fields of a form.

        Raises:
            Problem: it is larger than `FORM_BYTES_MAX`, or too slow.
        """
        body = bytearray()
        request.is_arriving = True
        try:
            async with asyncio.timeout(self._timeout_s):
                async for part in request.exchange:
                    body += part
                    if len(body) > FORM_BYTES_MAX:
                        detail = f"the form is larger than {FORM_BYTES_MAX:,} bytes; send less"
                        raise Problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail, close=True)
        except TimeoutError:
            detail = f"the form did not arrive within {self._timeout_s:g} s; send it again"
            raise Problem(HTTPStatus.REQUEST_TIMEOUT, detail, close=True) from None
        finally:
            request.is_arriving = False
        return dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))

    async def checked(self, body: bytes, check: Callable[[bytes], _T]) -> _T:
        """The result of `check`, which passes over a body once; a large body is checked in a thread."""
        if len(body) <= _INLINE_BYTES:
            return check(body)
        return await asyncio.get_running_loop().run_in_executor(self._checks, check, body)

    async def sorted(self, body: bytes, sort: Callable[[bytes], _T]) -> _T:
        """The result of `sort`, which processes each element of a body: in a thread, one body at a time."""
        return await asyncio.get_running_loop().run_in_executor(self._sorts, sort, body)

    def hold_refused(self, request: Request, count: int) -> None:
        """Charge the reasons of refused elements to the memory of their request, or raise a `Problem`."""
        self._hold(request, count * REFUSED_BYTES)

    def release(self, request: Request) -> None:
        """Release the memory of a finished request."""
        self.held_bytes -= request.held_bytes
        request.held_bytes = 0
        if request.has_turn:
            request.has_turn = False
            self._large.release()

    async def _take_turn(self, request: Request) -> None:
        if not request.has_turn:
            await self._large.acquire()
            request.has_turn = True

    async def _content(self, request: Request) -> bytes:
        encoding = self._check_head(request)
        request.is_arriving = True
        try:
            body = await self._read(request)
        except TimeoutError:
            detail = f"the body did not arrive within {self._timeout_s:g} s, or stopped; send it again"
            raise Problem(HTTPStatus.REQUEST_TIMEOUT, detail, close=True) from None
        finally:
            request.is_arriving = False
        if encoding == "identity":
            return body
        content = b""
        if len(body) <= _INLINE_BYTES:
            content = self._decompress(body, encoding, _INLINE_BYTES + 1)
        if len(body) <= _INLINE_BYTES and len(content) <= _INLINE_BYTES:
            self._hold(request, len(content))
            return content
        async with self._unpacking:  # so that only one at a time takes memory that is not accounted for yet
            unpack = partial(self._decompress, encoding=encoding, max_bytes=MAX_BODY_BYTES + 1)
            content = await asyncio.get_running_loop().run_in_executor(self._checks, unpack, body)
            self._hold(request, len(content))
        return content

    def _check_head(self, request: Request) -> str:
        if not request.is_json:
            what = f"the content type is not {JSON}; send JSON with this content type"
            raise Problem(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, what, close=True)
        encoding = request.header("content-encoding").strip().lower() or "identity"
        if encoding not in _ENCODINGS:
            what = f"the content encoding {encoding[:40]} is unknown; use gzip, zstd or none"
            raise Problem(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, what, close=True)
        return encoding

    async def _read(self, request: Request) -> bytes:
        # The server reads no more than the sender's content length; in chunks, there is none.
        length = int(request.header("content-length") or 0)
        if length > MAX_BODY_BYTES:
            self._refuse_size()
        if 0 < length <= min(_WHOLE_BYTES, _PROMISED_BYTES_MAX - self._promised_bytes):
            body = await self._read_whole(request, length)
        else:
            body = await self._read_parts(request, length)
        if len(body) < length:
            detail = f"the body broke off after {len(body):,} of {length:,} bytes; send it again"
            raise Problem(HTTPStatus.BAD_REQUEST, detail, close=True)
        return body

    async def _read_whole(self, request: Request, length: int) -> bytes:
        # Bytes that are only announced are not charged, because that would keep others out.
        self._promised_bytes += length
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        self._ends_s[task] = loop.time() + min(self._timeout_s, self._pace_s * ceil(length / PACE_BYTES))
        if self._timer is None:
            self._timer = loop.call_later(_LOOK_S, self._cancel_late, loop)
        try:
            body = await request.exchange()
        except asyncio.CancelledError:
            if task is None or self._ends_s[task] is not None:
                raise
            task.uncancel()
            raise TimeoutError from None
        finally:
            self._promised_bytes -= length
            del self._ends_s[task]
        self._hold(request, len(body))
        return body

    def _cancel_late(self, loop: asyncio.AbstractEventLoop) -> None:
        """Cancel the reads whose time is up, and note it; a timer for each read would cost a tenth of it."""
        for task, end_s in self._ends_s.items():
            if task is not None and end_s is not None and end_s <= loop.time():
                self._ends_s[task] = None
                task.cancel()
        self._timer = loop.call_later(_LOOK_S, self._cancel_late, loop) if self._ends_s else None

    async def _read_parts(self, request: Request, length: int) -> bytes:
        clock = asyncio.get_running_loop().time
        last_s = clock() + self._timeout_s
        content, in_time_bytes = io.BytesIO(), PACE_BYTES
        async with asyncio.timeout(min(self._timeout_s, self._pace_s)) as limit:
            async for part in request.exchange:
                self._hold(request, len(part))
                content.write(part)
                if content.tell() == length:
                    break
                if content.tell() >= in_time_bytes:
                    in_time_bytes = content.tell() + PACE_BYTES
                    limit.reschedule(min(clock() + self._pace_s, last_s))
        return content.getvalue()  # its own buffer, not copied

    def _hold(self, request: Request, size_bytes: int) -> None:
        held_bytes = request.held_bytes + size_bytes
        if held_bytes > MAX_BODY_BYTES:
            self._refuse_size()
        limit_bytes = HELD_BYTES_MAX if held_bytes <= _SMALL_BYTES else HELD_BYTES_MAX - _FOR_SMALL_BYTES
        if self.held_bytes + size_bytes > limit_bytes:
            raise busy("too much is being sent at once; try again in a moment")
        request.held_bytes += size_bytes
        self.held_bytes += size_bytes

    def _refuse_size(self) -> None:
        detail = f"the body is larger than {MAX_BODY_BYTES:,} bytes; send less at once"
        raise Problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail, close=True)

    def _decompress(self, body: bytes, encoding: str, max_bytes: int) -> bytes:
        try:
            return _UNPACK[encoding](body, max_bytes)
        except (OSError, zlib.error) as error:
            detail = f"the body is not valid {encoding} ({error}); send it again"
            raise Problem(HTTPStatus.BAD_REQUEST, detail) from None


def count_values(body: bytes) -> int:
    """The maximum number of values and member names that a JSON text may have."""
    return body.count(b",") + body.count(b":")


def _gunzip(body: bytes, max_bytes: int) -> bytes:
    content, left, members = io.BytesIO(), memoryview(body), 0
    while left and content.tell() < max_bytes:
        if members == _GZIP_MEMBERS_MAX:
            raise zlib.error(f"it has more than {_GZIP_MEMBERS_MAX} members")
        members += 1
        member = zlib.decompressobj(wbits=31)
        while not member.eof and content.tell() < max_bytes:
            piece = left[:_PACKED_BYTES]
            part = member.decompress(piece, min(_UNPACKED_BYTES, max_bytes - content.tell()))
            left = left[len(piece) - len(member.unconsumed_tail) - len(member.unused_data) :]
            if not (part or left or member.eof):
                raise zlib.error("it breaks off")
            content.write(part)
    return content.getvalue()


def _unzstd(body: bytes, max_bytes: int) -> bytes:
    import pyarrow as pa

    with pa.input_stream(pa.py_buffer(body), compression="zstd") as stream:
        content: bytes = stream.read(max_bytes)
    return content


_UNPACK: Final = {"gzip": _gunzip, "zstd": _unzstd}
