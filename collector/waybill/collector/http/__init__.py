"""One request and its answer: bodies, problems, and who may come in."""

from waybill.collector.http.auth import Auth as Auth
from waybill.collector.http.bodies import (
    BODY_TIMEOUT_S as BODY_TIMEOUT_S,
    Bodies as Bodies,
    looked_into as looked_into,
)
from waybill.collector.http.exchange import (
    JSON as JSON,
    Answer as Answer,
    Door as Door,
    Exchange as Exchange,
    Request as Request,
    json_answer as json_answer,
)
from waybill.collector.http.problem import PROBLEM_JSON as PROBLEM_JSON, Problem as Problem, busy as busy
