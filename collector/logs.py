"""The collector's log on stderr, as text or JSON: new lines are written at once, repeats once a minute.

So a flood of bad requests does not fill a disk. For a request, the log says where it came from and why it was
refused, and never contains its body or its key.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from typing import Any, Final, Literal, TextIO

import msgspec

from waybill.facets.json_events import instant
from waybill.transport.clock import SYSTEM_CLOCK, Clock

Level = Literal["error", "warning", "info", "debug"]

PERIOD_S: Final = 60.0
"""How often repeats are written."""

KINDS_MAX: Final = 100
"""How many different lines may be written in that interval; further ones are summed up as one."""

_MORE: Final = "further lines of other kinds"


def show_log(log_format: str, level: str) -> None:
    """Send the log of this process to stderr, in lines of text or of JSON, from a level on."""
    logging.getLogger().addHandler(Log(sys.stderr, as_json=log_format == "json"))
    logging.getLogger("waybill").setLevel(level.upper())


def sum_up(*, at_end: bool = False) -> None:
    """Write the repeats that are due, or all of them at the end; call this regularly."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, Log):
            handler.sum_up(at_end=at_end)


def about(same: Mapping[str, object], once: Mapping[str, object] | None = None) -> dict[str, object]:
    """The fields of a line beside its message, as the argument `extra` of a logger.

    Args:
        same: lines with the same values of these are repeats.
        once: written only with the first of them.
    """
    return {"same": same, "once": once or {}}


class _Kind:
    """Lines that are repeats of one another."""

    __slots__ = ("first", "repeats", "until_s")

    def __init__(self, first: logging.LogRecord, until_s: float) -> None:
        self.first = first
        self.until_s = until_s
        self.repeats = 0


class Log(logging.StreamHandler["TextIO"]):
    """Writes log lines, and sums up those that repeat one."""

    def __init__(self, stream: TextIO, *, as_json: bool, clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__(stream)
        self._clock = clock
        self._kinds: dict[object, _Kind] = {}
        self.setFormatter(_Json() if as_json else _Text())

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line, unless it repeats one of this minute."""
        same: Mapping[str, object] = getattr(record, "same", {})
        # A message that contains a path or number is another kind; lines with fields are distinguished by
        # these.
        kind: object = (record.levelno, record.msg, *same.items()) if same else record.getMessage()
        if kind not in self._kinds and len(self._kinds) >= KINDS_MAX:
            kind = None
            record = _copy(record, msg=_MORE, args=(), exc_info=None, same={}, once={})
        known = self._kinds.get(kind)
        if known is not None:
            known.repeats += 1
            return
        self._kinds[kind] = _Kind(record, self._clock.monotonic_s() + PERIOD_S)
        super().emit(record)

    def sum_up(self, *, at_end: bool = False) -> None:
        """Write how often lines were repeated: lines whose minute is over, or all of them."""
        self.acquire()
        try:
            monotonic_s = self._clock.monotonic_s()
            due = [kind for kind, known in self._kinds.items() if at_end or monotonic_s >= known.until_s]
            for known in map(self._kinds.pop, due):
                if known.repeats:
                    now_s = self._clock.now_ms() / 1_000
                    told = {"once": {"repeats": known.repeats}, "created": now_s, "exc_info": None}
                    super().emit(_copy(known.first, **told))
        finally:
            self.release()


def _copy(record: logging.LogRecord, **changes: object) -> logging.LogRecord:
    return logging.makeLogRecord(record.__dict__ | changes)


def _at(record: logging.LogRecord) -> str:
    return instant(int(record.created * 1_000))


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return {**getattr(record, "same", {}), **getattr(record, "once", {})}


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": _at(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "process": record.process,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        level = record.levelname.lower()
        fields = [f" {name}={_shown(value)}" for name, value in _fields(record).items()]
        line = f"{_at(record)} {level} {' '.join(record.getMessage().split())}{''.join(fields)}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _shown(value: object) -> str:
    """The value, quoted if it could be mistaken for several, or for the end of a line."""
    text = str(value)
    plain = text.isprintable() and not set(text) & set(' "=')
    return text if plain and text else msgspec.json.encode(text).decode()
