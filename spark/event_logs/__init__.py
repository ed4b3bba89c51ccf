"""Spark's event logs: the failed writes in them, for applications that no session tracked."""

from .applications import LoggedApplication as LoggedApplication
from .catching_up import (
    CaughtUp as CaughtUp,
    Correction as Correction,
    catch_up as catch_up,
    stored_events as stored_events,
)
from .files import EventLog as EventLog, EventLogError as EventLogError, find_logs as find_logs
from .following import EventLogFollower as EventLogFollower
from .history_server import logs_of_server as logs_of_server
from .submitting import submit as submit
