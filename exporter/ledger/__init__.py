"""The ledger of a root: records every change of its files, in a chain of small entries."""

from .comparing import compare_again, compare_files, compare_hours
from .entries import Changes
from .following import Followed, Position, follow_ledger
from .holding import hold_against_ledger, noted_hours, seal_there
from .ledger import recorded, root_lock
from .state import Doubt, LedgerState, finding_id, is_archived, read_ledger
