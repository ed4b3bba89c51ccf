"""Marquez's database as a source: its table ``lineage_events``; a part is a window of event time.

Only the columns ``event_time`` and ``event`` are read, which every version of Marquez has. The embedded
engine reads a part with a server-side cursor, Spark with its JDBC source.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlsplit, urlunsplit

import msgspec

from waybill.transport.errors import MissingExtraError
from waybill.transport.journal import Kind

from .marquez import cut_window
from .source import SourceError, SourceNotFoundError, SourceUnreachableError, Stored

if TYPE_CHECKING:
    from waybill.transport.config import Settings

_EXTENT: Final = """
SELECT (extract(epoch FROM min(event_time)) * 1000000)::bigint,
       (extract(epoch FROM max(event_time)) * 1000000)::bigint,
       count(*)
FROM lineage_events
"""
# Whole numbers, so that rounding cannot drop an event between two windows; the index is on event_time itself.
_WITHIN: Final = (
    "event_time >= timestamptz 'epoch' + %s * interval '1 microsecond' "
    "AND event_time < timestamptz 'epoch' + %s * interval '1 microsecond'"
)
_SELECT: Final = f"SELECT event::text FROM lineage_events WHERE {_WITHIN}"  # noqa: S608 - only our own words
_TABLE: Final = """
(SELECT event_time, (extract(epoch FROM event_time) * 1000000)::bigint AS time_us, event::text AS event
 FROM lineage_events) AS events
"""
_JDBC_NAMES: Final = {
    **{name: name for name in ("user", "password", "sslmode", "sslrootcert", "sslcert", "sslkey", "options")},
    "connect_timeout": "connectTimeout",
    "application_name": "ApplicationName",
}
"""Connection parameters: libpq's names, and those of the JDBC driver."""


class Jdbc(msgspec.Struct, frozen=True):
    """A database connection for Java programs.

    Attributes:
        url: without user and password.
        properties: user, password and the other connection parameters.
        table: a subquery instead of a table, with the columns `event`, `time_us` and `event_time`.
    """

    url: str
    properties: dict[str, str]
    table: str = _TABLE

    def within(self, start_us: int, end_us: int) -> str:
        """The SQL condition that an event is in a window, excluding the end."""
        return _WITHIN % (start_us, end_us)


class MarquezDatabaseSource(msgspec.Struct, frozen=True):
    """The run events in the PostgreSQL database of a Marquez.

    Attributes:
        url: the database, as ``postgresql://user:password@host/marquez``.
        part_events: how many events a window has on average.
        batch_rows: how many events are fetched at a time.
    """

    url: str
    part_events: int = 50_000
    batch_rows: int = 2_000

    def describe(self) -> str:
        """Name the database, without the password."""
        parts = urlsplit(self.url)
        place = parts.netloc.rpartition("@")[2]
        return f"marquez-db {urlunsplit((parts.scheme, place, parts.path, parts.query, ''))}"

    def parts(self) -> list[str]:
        """Windows of event time as ``start-end`` in epoch microseconds, excluding the end."""
        with self._connected() as connection:
            first_us, last_us, count = connection.execute(_EXTENT).fetchone()
        if not count:
            return []
        return cut_window(first_us, last_us + 1, -(-count // self.part_events))

    def read(self, part: str) -> Iterator[Sequence[Stored]]:
        """The events of a window, read with a server-side cursor."""
        count = 0
        with self._connected() as connection, connection.cursor("waybill") as cursor:
            cursor.execute(_SELECT, self.window(part))
            while rows := cursor.fetchmany(self.batch_rows):
                yield [
                    Stored(at, Kind.OPENLINEAGE, "", text.encode())
                    for at, (text,) in enumerate(rows, count + 1)
                ]
                count += len(rows)

    def window(self, part: str) -> tuple[int, int]:
        """The start and end of a part, in epoch microseconds, excluding the end."""
        start, _, end = part.partition("-")
        return int(start), int(end)

    def jdbc(self) -> Jdbc:
        """The connection for Java programs, with the parameters that this connection has ended up with.

        Raises:
            SourceUnreachableError: the database does not answer.
            SourceError: the database is reached through a Unix socket, which Java cannot open.
        """
        with self._connected() as connection:
            info = connection.info
            host, port, name = info.host, info.port, quote(info.dbname, safe="")
            given = {"user": info.user, "password": info.password, **info.get_parameters()}
        if not host or host.startswith("/"):
            raise SourceError(
                f"{self.describe()} is reached through a Unix socket, but Spark needs a network address; "
                "give its host and port in the URL"
            )
        known = {_JDBC_NAMES[key]: value for key, value in given.items() if key in _JDBC_NAMES and value}
        address = f"[{host}]" if ":" in host else host
        return Jdbc(f"jdbc:postgresql://{address}:{port}/{name}", {**known, "readOnly": "true"})

    def place(self, part: str, at: int) -> str:
        """The number of the event within its window."""
        return f"event {at:,} of the window {part} (epoch microseconds) in {self.describe()}"

    @contextlib.contextmanager
    def _connected(self) -> Iterator[Any]:
        try:
            import psycopg
        except ImportError:
            raise MissingExtraError("the source marquez-db", "postgres") from None
        try:
            with psycopg.connect(self.url) as connection:
                # A read-only transaction reads the whole part at one point in time.
                connection.read_only = True
                yield connection
        except psycopg.Error as error:
            reason = " ".join(str(error).split())
            raise SourceUnreachableError(
                f"{self.describe()} cannot be read ({reason}); check the database and the URL, and try again"
            ) from None


def open_marquez_db(places: Sequence[str], settings: Settings) -> MarquezDatabaseSource:  # noqa: ARG001 - of the protocol
    """The database at the given URL, exactly one."""
    if len(places) != 1 or urlsplit(places[0]).scheme not in {"postgresql", "postgres"}:
        raise SourceNotFoundError(
            "the source `marquez-db` takes one URL; give it, for example postgresql://user:password@host/marquez"
        )
    return MarquezDatabaseSource(places[0])
