"""Making the keys of a root, and keeping them up with the root's ledger.

A step follows the ledger, reads the files of some hours, and publishes one span with the new contents; small
spans are rolled up. So a step ends soon, and a crash loses one step at most:

1. The files of the span are published under a serial that no contents name.
2. The contents are replaced.
3. Files that the new contents do not name are removed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from itertools import takewhile
from pathlib import Path
from typing import Final

import msgspec

from waybill.transport.files import Files
from waybill.transport.locks import locked

from ..differing import LOCK, list_differing
from ..directory import compacted_files, compacted_folders
from ..ledger import compare_hours, follow_ledger, noted_hours
from ..names import KEYS, Hour, relative
from .building import Builder, ReadFile
from .changed import list_changed, note_compared
from .contents import Contents, DamagedError
from .opened import OpenKeys
from .spans import stamp_of

log = logging.getLogger("waybill.exporter")

STEP_FILES: Final = 500
"""A step reads so many files at most, or those of one hour."""

STEP_BYTES: Final = 2**26


def keep_step(
    root: Path, *, files: Files | None = None, step_files: int = STEP_FILES, again: bool = False
) -> Contents | None:
    """Do one step to make the keys of a root, or to bring them up to date.

    With `again`, files that could not be read are tried again, and the folders are compared with the files
    that the keys know: somebody may have put a file there, or deleted one.

    Returns:
        The new contents, which are up to date once no hour waits; None if the root has no ledger.

    Raises:
        OSError: the root cannot be read or written.
    """
    if follow_ledger(root, None) is None:
        return None
    files = files or Files()
    files.make_folder(root / KEYS)
    with locked(root / KEYS / LOCK):
        while True:
            try:
                return _Step(root, files, step_files).run(again=again)
            except DamagedError as error:
                log.warning("%s", error)
                files.remove(error.path)  # The next try finds that it is gone, and reads its hours again.


class _Step(Builder):
    """One step."""

    def __init__(self, root: Path, files: Files, step_files: int) -> None:
        super().__init__(root, files)
        self._step_files = step_files

    def run(self, *, again: bool) -> Contents | None:
        """Follow the ledger, read files, roll up spans, and replace the contents."""
        before = self.known()
        contents = before
        if before is None or follow_ledger(self.root, before.position) is None:
            contents = self._begun()
        if contents is None:
            return None
        contents = self._without_lost(contents)
        if again:
            noted = (one.hour for one in list_differing(self.root))
            changed = list_changed(OpenKeys(self.root, contents))
            note_compared(self.root)
            contents = _waiting_for(contents, {*contents.unread, *noted, *changed})
        followed = follow_ledger(self.root, contents.position)
        if followed is None:  # the root was replaced in this very moment
            return contents
        contents = _waiting_for(contents, followed.hours)
        contents = msgspec.structs.replace(contents, position=followed.position)
        if contents.waiting:
            read = self._read(contents)
            compare_hours(
                self.root, self._files, {*contents.waiting}.difference(read.waiting), contents.position
            )
            contents = read
        return self.published(contents, before)

    def _begun(self) -> Contents | None:
        """Contents that know no file yet."""
        begins = follow_ledger(self.root, None)
        if begins is None:
            return None
        return _waiting_for(self.empty(begins.position), {*self._all_hours(), *begins.hours})

    def _all_hours(self) -> set[Hour]:
        """The hours that have compacted or late files, or had some the last time that they changed."""
        return {*compacted_folders(self.root), *noted_hours(self.root)}

    def _without_lost(self, contents: Contents) -> Contents:
        """The contents without the spans that lack a file."""
        if not (lost := self.lost(contents)):
            return contents
        hours = [hour for hour in self._all_hours() if any(span.has(hour) for span in lost)]
        spans = tuple(span for span in contents.spans if span not in lost)
        return _waiting_for(msgspec.structs.replace(contents, spans=spans), hours)

    def _read(self, contents: Contents) -> Contents:
        """Read the files of waiting hours, the newest first, until there are enough for a step."""
        there = self._next_files(contents)
        known = {span: self.files_of(span, list(there)) for span in contents.spans}
        versions = {(file.path, file.stamp) for hour in there.values() for file in hour}
        stale = {
            span: [file.number for file in files if (file.path, file.stamp) not in versions]
            for span, files in known.items()
        }
        spans = [msgspec.structs.replace(span, gone=(*span.gone, *stale[span])) for span in contents.spans]
        contents = msgspec.structs.replace(contents, spans=tuple(spans))
        same = {(file.path, file.stamp) for files in known.values() for file in files}
        read = [file for hour in there.values() for file in hour if (file.path, file.stamp) not in same]
        contents, bad = self.with_span(contents, read)
        # Questions read the bad ones themselves, and say what is wrong with them.
        unread = {hour for hour, files in there.items() if not set(bad).isdisjoint(files)}
        doubled = {hour for hour, files in there.items() if len({_system(one) for one in files}) < len(files)}
        return msgspec.structs.replace(
            contents,
            waiting=contents.waiting[len(there) :],
            unread=tuple(sorted(unread.union(contents.unread) - (there.keys() - unread))),
            doubled=tuple(sorted(doubled.union(contents.doubled) - (there.keys() - doubled))),
        )

    def _next_files(self, contents: Contents) -> dict[Hour, list[ReadFile]]:
        """The files of the first waiting hours, of one month, as many as are enough for a step."""
        first = contents.waiting[0].day[:6]
        hours = list(takewhile(lambda hour: hour.day.startswith(first), contents.waiting))
        there = compacted_files(self.root, hours)
        found: dict[Hour, list[ReadFile]] = {}
        count = size_bytes = 0
        for hour in hours:
            if count >= self._step_files or size_bytes >= STEP_BYTES:
                break
            found[hour] = [one for path in there[hour] if (one := self._file_at(path)) is not None]
            count += len(found[hour])
            size_bytes += sum(one.size_bytes for one in found[hour])
        return found

    def _file_at(self, path: Path) -> ReadFile | None:
        try:
            status = path.stat()
        except FileNotFoundError:
            return None
        return ReadFile(relative(self.root, path), path, stamp_of(status), status.st_size)


def _system(one: ReadFile) -> str:
    return one.path.split("/")[2]


def _waiting_for(contents: Contents, hours: Iterable[Hour]) -> Contents:
    waiting = tuple(sorted({*contents.waiting, *hours}, reverse=True))
    return msgspec.structs.replace(contents, waiting=waiting)
