"""What the collector says when it cannot do what it was asked: problem details of RFC 9457."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Final

import msgspec

PROBLEM_JSON: Final = "application/problem+json"

RETRY_AFTER_S: Final = 2
"""How long a sender is asked to wait before it tries again, in seconds."""


class Problem(Exception):  # noqa: N818 - an answer, not an error of ours
    """The request is answered with this instead.

    Args:
        status: the HTTP status.
        detail: what is wrong and what to do, in one sentence.
        errors: every single reason, where there are several; Marquez has the same list.
        headers: further headers of the answer.
        close: whether the connection is of no more use: some of the body was not read.
    """

    def __init__(
        self,
        status: HTTPStatus,
        detail: str,
        *,
        errors: Sequence[str] = (),
        headers: Sequence[tuple[str, str]] = (),
        close: bool = False,
    ) -> None:
        super().__init__(status, detail)
        self.status = status
        self.detail = detail
        self.errors = tuple(errors)
        self.headers = tuple(headers) + ((("connection", "close"),) if close else ())

    def body(self) -> bytes:
        """The problem as JSON; its type is ``about:blank``, so the title is the status's own."""
        members: dict[str, object] = {
            "type": "about:blank",
            "title": self.status.phrase,
            "status": self.status.value,
            "detail": self.detail,
        }
        if self.errors:
            members["errors"] = self.errors
        return msgspec.json.encode(members)


def busy(detail: str) -> Problem:
    """What was asked cannot be done now, and can be later."""
    headers = [("retry-after", str(RETRY_AFTER_S))]
    return Problem(HTTPStatus.SERVICE_UNAVAILABLE, detail, headers=headers)
