"""Delivery: the projection that sends events to one backend, and the events that the backend refuses."""

from .dead_letter_box import (
    OWED_PREFIX as OWED_PREFIX,
    DeadLetter as DeadLetter,
    dead_letter_body as dead_letter_body,
    dead_letters as dead_letters,
    drop_dead_letters as drop_dead_letters,
    retry_dead_letters as retry_dead_letters,
)
from .delivery import (
    CONNECTIONS as CONNECTIONS,
    Counters as Counters,
    Delivery as Delivery,
    counters_of as counters_of,
    progress_of as progress_of,
)
