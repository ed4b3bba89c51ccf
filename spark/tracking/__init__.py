"""Tracking: a session whose reads and writes leave a trail, with the failures that the listener hides."""

from .corrections import UnknownRun, failure_event, inferred_end_event, success_event, unknown_run
from .executions import Execution, has_written, lacks_reason, with_reason
from .exit_status import ProgramFailure
from .match_failures import is_part, lost_writes, match, may_be_of
from .observed_runs import FailedExecution, ObservedRun, ObservedRuns
from .plans import hides_write, targets_of, why_nothing, writes
from .sessions import configure, session
