"""Tracking: a session whose reads and writes leave a trail, with the failures that the listener hides."""

from waybill.spark.tracking.corrections import (
    failure_event as failure_event,
    inferred_end_event as inferred_end_event,
    success_event as success_event,
    unknown_run as unknown_run,
)
from waybill.spark.tracking.executions import Execution as Execution
from waybill.spark.tracking.exit_status import ProgramFailure as ProgramFailure
from waybill.spark.tracking.match_failures import lost_writes as lost_writes, match as match
from waybill.spark.tracking.observed_runs import (
    FailedExecution as FailedExecution,
    ObservedRun as ObservedRun,
    ObservedRuns as ObservedRuns,
)
from waybill.spark.tracking.plans import may_ignore as may_ignore
from waybill.spark.tracking.sessions import configure as configure, session as session
