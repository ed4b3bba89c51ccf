"""One request and its answer: bodies, problems, and who may come in."""

from __future__ import annotations

from waybill.collector.http.auth import Auth
from waybill.collector.http.bodies import BODY_TIMEOUT_S, Bodies, looked_into
from waybill.collector.http.exchange import JSON, Answer, Door, Exchange, Request, json_answer
from waybill.collector.http.problem import PROBLEM_JSON, Problem, busy

__all__ = [
    "BODY_TIMEOUT_S",
    "JSON",
    "PROBLEM_JSON",
    "Answer",
    "Auth",
    "Bodies",
    "Door",
    "Exchange",
    "Problem",
    "Request",
    "busy",
    "json_answer",
    "looked_into",
]
