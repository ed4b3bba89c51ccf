"""One request and its response: bodies, problems, and access."""

from waybill.collector.http.auth import Auth as Auth
from waybill.collector.http.bodies import (
    BODY_TIMEOUT_S as BODY_TIMEOUT_S,
    Bodies as Bodies,
    count_values as count_values,
)
from waybill.collector.http.connections import (
    CONNECTIONS_MAX as CONNECTIONS_MAX,
    Connections as Connections,
)
from waybill.collector.http.exchange import (
    JSON as JSON,
    NDJSON as NDJSON,
    PROBLEM_JSON as PROBLEM_JSON,
    Answer as Answer,
    Exchange as Exchange,
    Handler as Handler,
    Problem as Problem,
    Request as Request,
    busy as busy,
    json_answer as json_answer,
    wrong_root as wrong_root,
)
