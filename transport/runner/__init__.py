"""The runner: the one process of a home that runs its projections, and the supervisor that starts it."""

from .flushing import FlushReport as FlushReport, flush as flush
from .isolation import PAUSES_S as PAUSES_S
from .open_runs import OpenRun as OpenRun
from .projection import (
    PROJECTIONS_GROUP as PROJECTIONS_GROUP,
    Progress as Progress,
    Projection as Projection,
    Step as Step,
    left_s as left_s,
    note_published as note_published,
    progress_of as progress_of,
    unsettled as unsettled,
)
from .runner import (
    IDLE_S as IDLE_S,
    Runner as Runner,
    forget_problems as forget_problems,
    statuses as statuses,
)
from .supervisor import LOG_NAME as LOG_NAME, Supervisor as Supervisor, is_runner as is_runner
from .unended import note_program as note_program
