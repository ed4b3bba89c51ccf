"""Bodies: read whole within limits of size, time and memory, and decompressed within the same size.

A body takes its own size of memory, and what is made of it takes more: a list of short texts ten times as
much. So the number of its values has a limit as well, and only one large body at a time is looked into.
"""

from __future__ import annotations

import asyncio
import io
import zlib
from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, TypeVar

from waybill.collector.http.exchange import JSON, Problem, busy
from waybill.transport.admission import MAX_BODY_BYTES

if TYPE_CHECKING:
    from waybill.collector.http.exchange import Request

HELD_BYTES_MAX: Final = 3 * MAX_BODY_BYTES // 2
"""What the bodies of all requests under way may take together."""

BODY_TIMEOUT_S: Final = 30.0
"""How long a body may take to arrive."""

VALUES_MAX: Final = 2_500_000
"""How many values and names of members a body may have, counted by its commas and colons."""

_LARGE_BYTES: Final = 16 * 2**20
_INLINE_BYTES: Final = 256 * 2**10
"""A body up to this size is decompressed and looked into by the event loop, a larger one by a thread."""
_WHOLE_BYTES: Final = 4 * 2**20
"""A body up to this size is read at once, a larger one in parts, because at once it is in memory twice."""
_GZIP_MEMBERS_MAX: Final = 64
"""The rest of a piece is copied after each member, so many members would take long."""
_PACKED_BYTES: Final = 64 * 2**10
_UNPACKED_BYTES: Final = 2**20
"""A body is decompressed in pieces, because otherwise it would be in memory twice."""
_ENCODINGS: Final = ("identity", "gzip", "zstd")

_T = TypeVar("_T")


async def looked_into(body: bytes, look: Callable[[bytes], _T]) -> _T:
    """What `look` returns for a body; other requests are answered while it looks into a large one."""
    if len(body) <= _INLINE_BYTES:
        return look(body)
    return await asyncio.to_thread(look, body)


class Bodies:
    """Reads the bodies of one server's requests; a body has `MAX_BODY_BYTES` at most, even decompressed."""

    def __init__(self, *, timeout_s: float = BODY_TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self._large = asyncio.Lock()
        self.held_bytes = 0

    async def read(self, request: Request) -> bytes:
        """The body of a request, decompressed; `release` must follow when the request is answered.

        Raises:
            Problem: its header says that it is no JSON, it is too large or too slow, or it is damaged.
        """
        content = await self._content(request)
        if len(content) > _LARGE_BYTES:
            await self._take_turn(request)
        # In JSON at most every other byte is a comma or a colon.
        if len(content) > 2 * VALUES_MAX and content.count(b",") + content.count(b":") > VALUES_MAX:
            detail = f"the body has more than {VALUES_MAX:,} values and names of members; send less at once"
            raise Problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail)
        return content

    def release(self, request: Request) -> None:
        """Give back the memory of a request that is over."""
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
        try:
            async with asyncio.timeout(self._timeout_s):
                body = await self._read(request)
        except TimeoutError:
            detail = f"the body did not arrive within {self._timeout_s:g} s; send it again"
            raise Problem(HTTPStatus.REQUEST_TIMEOUT, detail, close=True) from None
        if encoding == "identity":
            return body
        if len(body) > _INLINE_BYTES:
            await self._take_turn(request)
            content = await asyncio.to_thread(self._decompress, body, encoding)
        else:
            content = self._decompress(body, encoding)
        self._hold(request, len(content))
        return content

    def _check_head(self, request: Request) -> str:
        if request.header("content-type").partition(";")[0].strip().lower() != JSON:
            what = f"the content type is not {JSON}; send JSON and say so"
            raise Problem(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, what, close=True)
        encoding = request.header("content-encoding").strip().lower() or "identity"
        if encoding not in _ENCODINGS:
            what = f"the content encoding {encoding[:40]} is not known; send gzip, zstd or none"
            raise Problem(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, what, close=True)
        return encoding

    async def _read(self, request: Request) -> bytes:
        # The server reads no more than the sender's content length.
        length = int(request.header("content-length") or 0)
        self._hold(request, length)
        if 0 < length <= _WHOLE_BYTES:
            return await request.exchange()
        content = io.BytesIO()
        async for part in request.exchange:
            content.write(part)
            self._hold(request, max(0, content.tell() - request.held_bytes))
        if content.tell() < length:
            detail = f"the body broke off after {content.tell():,} of {length:,} bytes; send it again"
            raise Problem(HTTPStatus.BAD_REQUEST, detail, close=True)
        return content.getvalue()  # its own buffer, not copied

    def _hold(self, request: Request, size_bytes: int) -> None:
        if request.held_bytes + size_bytes > MAX_BODY_BYTES:
            self._refuse_size()
        if self.held_bytes + size_bytes > HELD_BYTES_MAX:
            raise busy("too much is being sent at once; send it again in a moment")
        request.held_bytes += size_bytes
        self.held_bytes += size_bytes

    def _refuse_size(self) -> None:
        detail = f"the body is larger than {MAX_BODY_BYTES:,} bytes; send less at once"
        raise Problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail, close=True)

    def _decompress(self, body: bytes, encoding: str) -> bytes:
        try:
            content = _UNPACK[encoding](body, MAX_BODY_BYTES + 1)
        except (OSError, zlib.error) as error:
            detail = f"the body is no {encoding} ({error}); send it again"
            raise Problem(HTTPStatus.BAD_REQUEST, detail) from None
        if len(content) > MAX_BODY_BYTES:
            self._refuse_size()
        return content


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
