"""One request and its response: bodies, problems, and access."""

from .auth import Auth
from .bodies import BODY_TIMEOUT_S, Bodies, count_values
from .endpoint import Endpoint
from .exchange import (
    HTML,
    JSON,
    NDJSON,
    PROBLEM_JSON,
    Answer,
    Exchange,
    Problem,
    ProblemDetails,
    Request,
    UnknownName,
    busy,
    failed,
    json_answer,
    redirect_to,
    wrong_root,
)
from .front import Front, Network
from .params import NUMBER_MAX, Given, convert_params, malformed, read_params, split_query
