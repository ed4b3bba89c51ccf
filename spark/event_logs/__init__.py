"""Spark's event logs: the failed writes in them, for applications that no session tracked."""

from waybill.spark.event_logs.applications import LoggedApplication as LoggedApplication
from waybill.spark.event_logs.catching_up import (
    CaughtUp as CaughtUp,
    Correction as Correction,
    catch_up as catch_up,
    stored_events as stored_events,
)
from waybill.spark.event_logs.files import (
    EventLog as EventLog,
    EventLogError as EventLogError,
    find_logs as find_logs,
)
from waybill.spark.event_logs.following import EventLogFollower as EventLogFollower
from waybill.spark.event_logs.history_server import logs_of_server as logs_of_server
from waybill.spark.event_logs.submitting import submit as submit
