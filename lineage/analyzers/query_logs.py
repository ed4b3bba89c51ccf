"""Query logs: the statements that a database says it has run.

PostgreSQL's log on stderr, its csvlog and its jsonlog, and JSON lines that have a query are read. What cannot
be read is counted.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import IO, Final

import msgspec

LINE_CHARS_MAX: Final = 2**20
"""A longer line is not read."""
STATEMENTS_MAX: Final = 100_000
"""So many different statements are kept of one log."""

_LEVELS: Final = (
    "DEBUG[1-5]|LOG|INFO|NOTICE|WARNING|ERROR|FATAL|PANIC|DETAIL|HINT|QUERY|CONTEXT|STATEMENT|LOCATION"
)
_ENTRY: Final = re.compile(rf"^.{{0,400}}?\b({_LEVELS}):  ?(.*)$", re.DOTALL)
_LOGGED: Final = re.compile(
    r"^(?P<timed>duration: [\d.]+ ms  )?(?:statement|execute [^:\n]{0,200}): (?P<text>.*)$", re.DOTALL
)
_QUERY_KEYS: Final = ("query", "sql", "statement", "query_text", "sql_text")
_CSV_BEGIN: Final = re.compile(r"\d{4}-\d\d-\d\d [\d:.]+ [\w+-]+,")
_CSV_COLUMNS_MIN: Final = 20
_CSV_LEVEL, _CSV_MESSAGE, _CSV_QUERY = 11, 13, 19
_FAILED: Final = ("ERROR", "FATAL", "PANIC")

# Each alternative takes what it has begun, closed or not: so the time is in proportion to the text.
_VALUES: Final = re.compile(
    r"""(?P<name>"(?:[^"]|"")*"?|`[^`]*`?)
    | (?P<space>--[^\n]*|/\*(?:.*?\*/|.*)|\s+)
    | (?P<string>[eEnNxXbB]?'(?:[^'\\]|''|\\.?)*'?|\$(?P<tag>\w*)\$(?:.*?\$(?P=tag)\$|.*))
    | (?P<number>\$\d+|\b\d[\w.]*)""",
    re.DOTALL | re.VERBOSE,
)
_LISTS: Final = (
    (re.compile(r"\?(?: ?, ?\?)+"), "?"),
    (re.compile(r"\(\s*\?\s*\)(?: ?, ?\(\s*\?\s*\))+"), "(?)"),
)
_WRITES: Final = re.compile(
    r"\b(?:insert|update|delete|merge|create|replace|into|overwrite|alter|rename|copy|load|call|exec(?:ute)?|do)\b",
    re.IGNORECASE,
)


class Logged(msgspec.Struct):
    """A statement of a log.

    Attributes:
        text: its first text, with its values.
        dialect: as the log says it; None: it does not.
        done: how often the log says that it has run.
        begun: how often it says that it was to be run, without those that failed.
    """

    text: str
    dialect: str | None = None
    done: int = 0
    begun: int = 0

    @property
    def times(self) -> int:
        """How often it was run, as far as the log says so."""
        return max(self.done, self.begun, 1)


class QueryLog:
    """Reads a query log.

    Attributes:
        statements: the statements that may write, by their text without values.
        reading: how many statements write nothing.
        failed: how many were run without success.
        damaged: how many lines or entries could not be read.
        left_out: how many statements are not kept, since there were too many different ones before.
    """

    def __init__(self) -> None:
        self.statements: dict[str, Logged] = {}
        self.reading = 0
        self.failed = 0
        self.damaged = 0
        self.left_out = 0
        self._failures: Counter[str] = Counter()

    def read(self, lines: IO[str]) -> None:
        """Read a log, in the form that its first lines have; the very first may be torn."""
        whole = self._whole(lines)
        first = list(islice(whole, 2))
        if any(line.lstrip().startswith("{") for line in first):
            self._read_json(chain(first, whole))
        elif any(map(_CSV_BEGIN.match, first)):
            self._read_csv(chain(first, whole))
        else:
            self._read_stderr(chain(first, whole))
        for plain, failures in self._failures.items():  # a failure may be logged before the statement
            if (known := self.statements.get(plain)) is not None:
                known.begun -= failures
                if known.begun <= 0 and not known.done:
                    del self.statements[plain]

    def _whole(self, lines: IO[str]) -> Iterator[str]:
        """The lines that are not empty; a part of one that is too long is none."""
        is_cut = False
        while line := lines.readline(LINE_CHARS_MAX):
            was_cut, is_cut = is_cut, not line.endswith("\n") and len(line) == LINE_CHARS_MAX
            if was_cut or is_cut:
                self.damaged += not is_cut
            elif line.strip():
                yield line

    def _read_json(self, lines: Iterable[str]) -> None:
        for line in lines:
            try:
                told = {key.lower(): value for key, value in _OBJECT.decode(line).items()}
            except (msgspec.MsgspecError, UnicodeError, RecursionError):
                self.damaged += 1
                continue
            if isinstance(message := told.get("message"), str) and "error_severity" in told:
                self._take(str(told["error_severity"]), message, told.get("statement"))
                continue
            query = next((told[key] for key in _QUERY_KEYS if isinstance(told.get(key), str)), None)
            if query is None:
                self.damaged += 1
                continue
            dialect = told.get("dialect")
            self._add(str(query), dialect if isinstance(dialect, str) else None)

    def _read_csv(self, lines: Iterable[str]) -> None:
        csv.field_size_limit(LINE_CHARS_MAX)
        rows = csv.reader(lines)
        while True:
            try:
                row = next(rows)  # what it raises at the end is caught
            except StopIteration:
                return
            except csv.Error:
                self.damaged += 1
                continue
            if len(row) < _CSV_COLUMNS_MIN:
                self.damaged += 1
            else:
                self._take(row[_CSV_LEVEL], row[_CSV_MESSAGE], row[_CSV_QUERY])

    def _read_stderr(self, lines: Iterable[str]) -> None:
        level, parts = "", list[str]()
        for line in chain(lines, [""]):
            if line.startswith("\t") and parts:
                parts.append(line[1:])
                continue
            if parts:
                message = "".join(parts).rstrip("\n")
                # The statement that failed is an entry of its own.
                self._take(*(("ERROR", "", message) if level == "STATEMENT" else (level, message, None)))
                parts = []
            if (found := _ENTRY.match(line)) is not None:
                level, parts = found[1], [found[2]]
            elif line:
                self.damaged += 1

    def _take(self, level: str, message: str, statement: object) -> None:
        """Take an entry of PostgreSQL's."""
        if level in _FAILED and isinstance(statement, str) and statement:
            self.failed += 1
            self._failures[without_values(statement)] += 1
        elif level == "LOG" and (found := _LOGGED.match(message)) is not None:
            # A statement that is logged before it runs may fail; one with its duration has not.
            self._add(found["text"], "postgres", is_done=found["timed"] is not None)

    def _add(self, text: str, dialect: str | None, *, is_done: bool = True) -> None:
        if not _WRITES.search(text):
            self.reading += 1
            return
        plain = without_values(text)
        if plain not in self.statements and len(self.statements) >= STATEMENTS_MAX:
            self.left_out += 1
            return
        known = self.statements.setdefault(plain, Logged(text, dialect))
        known.done += is_done
        known.begun += not is_done


def without_values(text: str, *, keep_escaped: bool = False) -> str:
    """A statement without its values and comments, so that those that differ in nothing else are one.

    Strings with a backslash may be kept: what it does depends on the dialect, and so where the string ends.
    """

    def plain(found: re.Match[str]) -> str:
        if found["name"] or (keep_escaped and "\\" in (found["string"] or "")):
            return found[0]
        return " " if found["space"] is not None else "?"

    told = _VALUES.sub(plain, text).strip().rstrip("; ")
    for pattern, one in _LISTS:
        told = pattern.sub(one, told)
    return re.sub(r" +", " ", told)


_OBJECT: Final = msgspec.json.Decoder(dict[str, object])
