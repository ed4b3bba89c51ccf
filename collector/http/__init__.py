"""One request and its response: bodies, problems, and access."""

from .auth import Auth
from .bodies import BODY_TIMEOUT_S, Bodies, count_values
from .bridge import answer_through, request_of
from .endpoint import Endpoint, WebRequest, WebResponse, json_response
from .exchange import (
    JSON,
    NDJSON,
    PROBLEM_JSON,
    Answer,
    Exchange,
    Handler,
    Problem,
    ProblemDetails,
    Request,
    UnknownName,
    busy,
    json_answer,
    wrong_root,
)
from .front import Front, Network
from .params import NUMBER_MAX, Given, convert_params, malformed, read_params, split_query
