"""The page: views of a home for people who look rather than type, made on the server."""

from .endpoints import page_endpoints
from .levels import LevelsOverTime
