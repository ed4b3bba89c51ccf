"""A home as an emitter uses it: the journal, agreed settings, redaction and the runner, opened together."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from waybill.facets import spelled_alike

from .admission import Redaction
from .errors import JournalError, JournalFullError
from .fallback import adopt_fallback, open_fallback
from .journal import Journal, Kind, encode_begun, redact_mark
from .programs import this_program
from .rejects import Rejects
from .root import renew_used_node
from .runner import Supervisor, note_program

if TYPE_CHECKING:
    from waybill.facets import RunEvent

    from .config import Settings
    from .errors import AdmissionError

_ADOPT_WITHIN_S: Final = 5.0
"""How long an emitter may spend adopting entries from the fallback; the next one continues."""

_SEARCHED: Final = 100_000
"""How many of the newest entries are searched for what was said of a file; they take about a second."""
_SEARCHED_AT_ONCE: Final = 500

log = logging.getLogger("waybill.transport")


class Home:
    """Keeps events, and makes sure that a runner processes them; made by `Home.open`.

    Threads may share one, and it works across a fork.

    Attributes:
        journal: the home's journal.
        settings: the caller's settings, with agreed values where the caller gave none.
        redaction: admits events by these settings.
    """

    def __init__(self, journal: Journal, supervisor: Supervisor) -> None:
        self.journal = journal
        self.settings = supervisor.settings
        self.redaction = Redaction(self.settings.redact, self.settings.bounds)
        self._supervisor = supervisor
        self._noted: int | None = None
        """The process that was noted as writing entries here; a fork is a different one."""
        atexit.register(_leave_at_exit, weakref.ref(self))

    @classmethod
    def open(cls, settings: Settings, journal: Journal | None = None) -> Home:
        """Open a home, agree on its settings, and start a runner if one is wanted and none is running.

        The caller may have opened the journal already. If the root shows that the journal's next numbers were
        used before, the journal first gets another node. Entries that the fallback kept while the home could
        not be used are adopted. If the home still cannot be used, the fallback replaces it, unless the
        settings are strict or the caller opened the journal.

        Raises:
            SettingsConflictError: the home's live runner uses other settings, and these are strict.
            JournalError: the home cannot hold a journal or cannot be locked, and there is no fallback.
        """
        may_fall_back = journal is None and not settings.strict
        try:
            journal = journal or Journal(settings.home, max_bytes=settings.journal_max_bytes)
            supervisor = Supervisor.open(journal, settings)
        except JournalError as error:
            if not may_fall_back:
                raise
            if journal is not None:
                journal.close()
            try:
                journal, own = open_fallback(settings, error)
            except JournalError as unusable:
                raise error from unusable
            return cls(journal, Supervisor(journal, own))
        renew_used_node(journal, supervisor.settings.root)
        adopt_fallback(journal, supervisor.settings, within_s=_ADOPT_WITHIN_S)
        return cls(journal, supervisor)

    def emit(self, body: bytes) -> None:
        """Admit an OpenLineage event and keep it, redacted.

        Raises:
            AdmissionError: the event is refused.
            JournalError: it could not be kept, for example because the disk is full.
        """
        self.append(Kind.OPENLINEAGE, self.redaction.admit(body), self.settings.system_name)

    def refuse(self, body: bytes, error: AdmissionError) -> None:
        """Keep an event that admission refused, redacted, beside the others, so that it can be mended.

        Raises:
            JournalError: it could not be kept.
        """
        Rejects(self.journal, self.redaction).add(Kind.OPENLINEAGE, [(body, str(error))])

    def note_transforms(self, run_id: str, transforms: Sequence[str], *, waits: bool) -> None:
        """Note, redacted, that a path of a file has begun these transforms, the last one now.

        The note survives the process on return, or a moment later if this does not wait, and a power failure
        from the next durable change on. If it cannot be kept, it is left out: events say what has happened.
        """
        body = redact_mark(encode_begun(run_id, transforms), self.redaction.redact)
        if not waits:
            self.journal.submit([(Kind.MARK, body, "")], lambda _: None, durable=False)
            return
        with contextlib.suppress(JournalError):
            self.journal.append(Kind.MARK, body, durable=False)

    def append(self, kind: Kind, body: bytes, system_name: str) -> None:
        """Keep an admitted entry; on return it is durable as the setting `durability` defines.

        Raises:
            JournalError: it could not be kept.
        """
        if self._noted != os.getpid():
            self._note_program(has_left=False)
        try:
            program = this_program()
            durable = self.settings.durability == "power"
            self.journal.append(kind, body, system_name, program=program and str(program), durable=durable)
        except JournalFullError:
            self._supervisor.ensure_runner()  # which makes room
            raise
        self._supervisor.ensure_runner()

    def last_event_of(self, did: str) -> RunEvent | None:
        """The last event of a file that carries our facet, among the newest `_SEARCHED` entries, or None.

        Raises:
            JournalError: the journal cannot be read.
        """
        word, end = spelled_alike(did).encode(), self.journal.last_seq()
        oldest = max(end - _SEARCHED, 0)
        while end > oldest:
            start = max(end - _SEARCHED_AT_ONCE, oldest)
            for entry in reversed(self.journal.read(start, limit=end - start)):
                event = entry.run_event if entry.seq <= end and word in entry.body.lower() else None
                if event is not None and event.run.runId == did:
                    facets = event.run.facets
                    if facets is not None and facets.delta_file is not None:
                        return event
            end = start
        return None

    def ensure_runner(self) -> None:
        """Start a runner if the last one has ended; checks at most once a second."""
        self._supervisor.ensure_runner()

    def _note_program(self, *, has_left: bool) -> None:
        """Note this process, so that its runs are ended if it disappears; or note that it ends normally."""
        program = this_program()
        self._noted = None if has_left else os.getpid()
        # Without the note no end is inferred, but no event is lost.
        with contextlib.suppress(JournalError):
            if program is not None:
                note_program(self.journal, program, has_left=has_left)

    def leave(self) -> None:
        """Note that this process, if it has tracked files, reports nothing more about them."""
        if self._noted == os.getpid():
            self._note_program(has_left=True)

    @property
    def is_durable(self) -> bool:
        """Whether all appended entries are fsynced."""
        return self.settings.durability == "power" or not self.journal.has_unsynced

    def sync(self) -> bool:
        """Fsync everything that is not yet durable.

        Returns:
            Whether everything is durable. If not, the log says why.
        """
        try:
            self.journal.sync()
        except JournalError:
            log.exception("the events of this process may not survive a power failure")
        return self.is_durable

    def close(self) -> None:
        """Make everything durable and close the journal; a closed home may be used again."""
        self.sync()
        self.leave()
        self.journal.close()


def _leave_at_exit(reference: weakref.ref[Home]) -> None:
    home = reference()
    if home is not None:
        home.leave()
