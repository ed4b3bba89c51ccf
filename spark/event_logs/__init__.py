"""Spark's event logs: the failed writes in them, for applications that no session tracked."""

from .applications import LoggedApplication
from .catching_up import CaughtUp, Correction, catch_up, stored_events
from .files import EventLog, EventLogError, find_logs
from .following import EventLogFollower
from .history_server import logs_of_server
from .submitting import submit
