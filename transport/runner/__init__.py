"""The runner: the one process of a home that runs its projections, and the supervisor that starts it."""

from .flushing import FlushReport, flush
from .isolation import PAUSES_S
from .open_runs import OpenRun
from .projection import (
    PROJECTIONS_GROUP,
    Progress,
    Projection,
    Step,
    left_s,
    note_published,
    progress_of,
    unsettled,
)
from .runner import IDLE_S, Runner, forget_problems, statuses
from .supervisor import LOG_NAME, Supervisor, is_runner
from .unended import note_program
