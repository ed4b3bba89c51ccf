"""The page: views of a home for people who look rather than type, made on the server."""

from .endpoints import page_endpoints as page_endpoints
from .health import HealthOfHome as HealthOfHome
from .levels import LevelsOfHome as LevelsOfHome, LevelsOverTime as LevelsOverTime
