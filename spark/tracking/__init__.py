"""Tracking: a session whose reads and writes leave a trail, with the failures that the listener hides."""

from .corrections import (
    failure_event as failure_event,
    inferred_end_event as inferred_end_event,
    success_event as success_event,
    unknown_run as unknown_run,
)
from .executions import (
    Execution as Execution,
    has_written as has_written,
    lacks_reason as lacks_reason,
    with_reason as with_reason,
)
from .exit_status import ProgramFailure as ProgramFailure
from .match_failures import (
    is_part as is_part,
    lost_writes as lost_writes,
    match as match,
    may_be_of as may_be_of,
)
from .observed_runs import (
    FailedExecution as FailedExecution,
    ObservedRun as ObservedRun,
    ObservedRuns as ObservedRuns,
)
from .plans import (
    hides_write as hides_write,
    targets_of as targets_of,
    why_nothing as why_nothing,
    writes as writes,
)
from .sessions import configure as configure, session as session
