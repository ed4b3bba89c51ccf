"""Event logs from Spark's History Server, through its REST interface."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import msgspec
import requests

from .files import EventLog, EventLogError, find_logs

_TIMEOUT_S: Final = 60.0
_CHUNK_BYTES: Final = 2**20


class _Attempt(msgspec.Struct):
    ended_ms: int = msgspec.field(default=-1, name="endTimeEpoch")
    is_completed: bool = msgspec.field(default=False, name="completed")


class _Application(msgspec.Struct):
    id: str
    attempts: list[_Attempt] = msgspec.field(default_factory=list)

    def is_since(self, since_ms: int) -> bool:
        return any(not attempt.is_completed or attempt.ended_ms >= since_ms for attempt in self.attempts)


def logs_of_server(url: str, folder: Path, since_ms: int | None = None) -> Iterator[EventLog]:
    """The logs of a server's applications that ended since then or are still running.

    Each is in a file below `folder`, only until the next one is requested.

    Raises:
        EventLogError: the server does not answer, or is not a History Server.
    """
    answer = _get(f"{url.rstrip('/')}/api/v1/applications")
    try:
        applications = msgspec.json.decode(answer.content, type=list[_Application])
    except msgspec.DecodeError as error:
        raise EventLogError(f"{url} is not a History Server: {error}") from None
    for application in applications:
        if since_ms is not None and not application.is_since(since_ms):
            continue
        file = folder / "logs.zip"
        address = f"{url.rstrip('/')}/api/v1/applications/{quote(application.id)}/logs"
        with _get(address, stream=True) as answer, file.open("wb") as written:
            try:
                for chunk in answer.iter_content(_CHUNK_BYTES):
                    written.write(chunk)
            except requests.RequestException as error:
                raise EventLogError(f"{address} broke off: {error}") from None
        for log in find_logs(file):
            yield log._replace(name=address)


def _get(url: str, **how: Any) -> requests.Response:  # noqa: ANN401 - what `requests.get` takes
    try:
        answer = requests.get(url, timeout=_TIMEOUT_S, **how)
        answer.raise_for_status()
    except requests.RequestException as error:
        raise EventLogError(f"{url} does not answer: {error}; use the address of a History Server") from None
    return answer
