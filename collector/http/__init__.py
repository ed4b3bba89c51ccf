"""One request and its response: bodies, problems, and access."""

from .auth import Auth as Auth
from .bodies import BODY_TIMEOUT_S as BODY_TIMEOUT_S, Bodies as Bodies, count_values as count_values
from .bridge import answer_through as answer_through, request_of as request_of
from .endpoint import (
    Endpoint as Endpoint,
    WebRequest as WebRequest,
    WebResponse as WebResponse,
    json_response as json_response,
)
from .exchange import (
    JSON as JSON,
    NDJSON as NDJSON,
    PROBLEM_JSON as PROBLEM_JSON,
    Answer as Answer,
    Exchange as Exchange,
    Handler as Handler,
    Problem as Problem,
    ProblemDetails as ProblemDetails,
    Request as Request,
    UnknownName as UnknownName,
    busy as busy,
    json_answer as json_answer,
    wrong_root as wrong_root,
)
from .front import Front as Front, Network as Network
from .params import (
    NUMBER_MAX as NUMBER_MAX,
    Given as Given,
    convert_params as convert_params,
    malformed as malformed,
    read_params as read_params,
    split_query as split_query,
)
