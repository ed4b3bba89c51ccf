"""The ledger of a root: records every change of its files, in a chain of small entries."""

from .comparing import (
    compare_again as compare_again,
    compare_files as compare_files,
    compare_hours as compare_hours,
)
from .entries import Changes as Changes
from .following import Followed as Followed, Position as Position, follow_ledger as follow_ledger
from .holding import (
    hold_against_ledger as hold_against_ledger,
    noted_hours as noted_hours,
    seal_there as seal_there,
)
from .ledger import recorded as recorded, root_lock as root_lock
from .state import (
    Doubt as Doubt,
    LedgerState as LedgerState,
    finding_id as finding_id,
    is_archived as is_archived,
    read_ledger as read_ledger,
)
