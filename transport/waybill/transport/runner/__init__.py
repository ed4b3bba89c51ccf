"""The runner: the one process of a home that works its projections, and who starts it."""

from waybill.transport.runner.flushing import FlushReport as FlushReport, flush as flush
from waybill.transport.runner.projection import (
    Progress as Progress,
    Projection as Projection,
    Step as Step,
    left_s as left_s,
    note_published as note_published,
    progress_of as progress_of,
    unsettled as unsettled,
)
from waybill.transport.runner.runner import (
    IDLE_S as IDLE_S,
    Runner as Runner,
    lag_s as lag_s,
    statuses as statuses,
)
from waybill.transport.runner.supervisor import Supervisor as Supervisor
from waybill.transport.runner.vanished import note_program as note_program
