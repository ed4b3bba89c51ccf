"""Where a rebuild on Spark keeps what is done until all of it is: files of a folder, or objects of a store.

What is kept under a name is there whole or not at all, and whoever keeps it again keeps the same.
"""

from __future__ import annotations

import contextlib
import functools
import io
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from waybill.exporter.exporting import ReplacedError, open_destination
from waybill.exporter.object_stores import open_store
from waybill.exporter.rebuilding import WORK, Plan, key_of_order
from waybill.exporter.sources import MARK, list_objects, open_object
from waybill.transport.files import TEMPORARY_SUFFIX, Files

if TYPE_CHECKING:
    from obstore.store import ObjectStore

    from waybill.exporter import Source, Wanted

_PLAN: Final = "plan.json"
_NODE_BYTES: Final = 6


class JobStore(Protocol):
    """What is done; executors get a copy of it."""

    def names(self, beginning: str) -> list[str]:
        """The names that begin so, in order."""

    def open(self, name: str) -> io.BufferedIOBase | None:
        """What is kept under a name, to be read; None: nothing."""

    def writing(self, name: str) -> contextlib.AbstractContextManager[Path]:
        """A file to be written, which is kept under the name when the block ends well."""


class FolderJobStore(msgspec.Struct, frozen=True):
    """Files of a folder that the driver and the executors have at the same path.

    Attributes:
        folder: where.
    """

    folder: Path

    def names(self, beginning: str) -> list[str]:
        """The names of the files that begin so."""
        return sorted(path.name for path in self.folder.glob(f"{beginning}*"))

    def open(self, name: str) -> io.BufferedIOBase | None:
        """A file, to be read."""
        try:
            return (self.folder / name).open("rb")
        except FileNotFoundError:
            return None

    @contextlib.contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        """A file of another name, which gets its own when it is durable."""
        files, path = Files(), self.folder / name
        temporary = path.with_name(f".{name}.{secrets.token_hex(4)}{TEMPORARY_SUFFIX}")
        yield temporary
        files.fsync(temporary)
        files.rename(temporary, path)
        files.fsync_folder(self.folder)


class ObjectJobStore(msgspec.Struct, frozen=True):
    """Objects of a store.

    Attributes:
        url: that of the folder they are in.
    """

    url: str

    def names(self, beginning: str) -> list[str]:
        """The names of the objects that begin so."""
        found = (one.partition(MARK)[2] for one in list_objects(self.url))
        return [name for name in found if name.startswith(beginning)]

    def open(self, name: str) -> io.BufferedIOBase | None:
        """An object, to be read."""
        try:
            _store(self.url).head(name)
        except FileNotFoundError:
            return None
        return open_object(f"{self.url}{MARK}{name}")

    @contextlib.contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        """A file of this machine, which is then sent."""
        with tempfile.TemporaryDirectory(prefix="waybill-kept-") as folder:
            path = Path(folder, name)
            yield path
            _store(self.url).put(name, path)


class WorkThere:
    """A rebuild into an object store that was begun or taken up; unless it is finished, the next takes it up.

    Attributes:
        parts: the parts of the source when it began.
        kept: what is done.
    """

    def __init__(self, folder: str, plan: Plan) -> None:
        self.parts = plan.parts
        self.kept = ObjectJobStore(f"{folder}/{plan.node}")
        self._folder = folder

    def finish(self) -> None:
        """Leave nothing to be taken up, nor what a rebuild left that died when it did this."""
        store = _store(self._folder)
        # First what says that there is something to take up.
        with contextlib.suppress(FileNotFoundError):
            store.delete([_PLAN])
        if names := [one.partition(MARK)[2] for one in list_objects(self._folder)]:
            store.delete(names)


def begin_there(source: Source, url: str, wanted: Wanted) -> WorkThere:
    """Begin a rebuild into a folder of an object store, or take up the same one where it was cut short.

    Two of the same order at once work by one plan: what one of them has done, the other need not do.

    Raises:
        SourceError: the source has no parts to name.
        DestinationError: the object store cannot be opened, or fails.
    """
    folder = f"{url}/{WORK}/{key_of_order(source, wanted)}"
    notes = open_destination(folder)
    while (found := notes.read(_PLAN)) is None:
        plan = Plan(secrets.token_hex(_NODE_BYTES), source.describe(), source.parts())
        with contextlib.suppress(ReplacedError):
            notes.write(_PLAN, msgspec.json.encode(plan), None)
    return WorkThere(folder, msgspec.json.decode(found[0], type=Plan))


@functools.cache
def _store(url: str) -> ObjectStore:
    return open_store(url)[1]
