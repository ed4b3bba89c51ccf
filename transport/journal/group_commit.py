"""The group commit: one transaction, so at most one fsync, for all callers that have entries at that moment.

- A caller that waits for the result (`GroupCommit.keep`) commits in its own thread: the thread that holds the
  lock commits for all threads that wait for it.
- A caller that must not wait, such as an event loop (`GroupCommit.submit`), gets a callback. One thread,
  started at the first such call, commits everything that was submitted while it was busy.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from ..clock import SYSTEM_CLOCK
from .rows import Item, Row

if TYPE_CHECKING:
    import apsw

    from .database import Database

_COMMIT_BYTES_MAX: Final = 16 * 2**20
"""A transaction takes no further entries once its entries are larger than this together."""

OnDone = Callable[[list[int] | Exception], None]
"""Takes the sequence numbers of the submitted entries, or the error; called in the committing thread."""

_Submitted = tuple[Sequence[Item], OnDone, bool]


class _Pending:
    """One caller's entries on their way through a commit."""

    __slots__ = ("done", "durable", "error", "rows", "seqs")

    def __init__(self, rows: list[Row], *, durable: bool = True) -> None:
        self.rows = rows
        self.durable = durable
        self.seqs: list[int] = []
        self.error: Exception | None = None
        self.done = False


class GroupCommit:
    """Commits the entries of all threads of a process; `insert` returns the sequence numbers of its rows."""

    def __init__(
        self,
        database: Database,
        rows_of: Callable[[Sequence[Item]], list[Row]],
        insert: Callable[[apsw.Connection, list[Row]], list[int]],
    ) -> None:
        self._database = database
        self._rows_of = rows_of
        self._insert = insert
        self.reset()

    def reset(self) -> None:
        """Forget what other threads wait for: they do not exist in the child of a fork."""
        # A dictionary for its order.
        self._pending: dict[_Pending, None] = {}
        self._submitted: queue.SimpleQueue[_Submitted | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._thread_lock = threading.Lock()
        self._began_s: float | None = None

    @property
    def committing_s(self) -> float:
        """How long the current commit of the thread has taken so far; 0 while it has nothing to commit."""
        began_s = self._began_s
        return 0.0 if began_s is None else SYSTEM_CLOCK.monotonic_s() - began_s

    def keep(self, rows: list[Row], *, durable: bool = True) -> list[int]:
        """Commit rows, all or none of them, and return their sequence numbers; see `Database.write`."""
        pending = _Pending(rows, durable=durable)
        self._commit((pending,))
        if pending.error is not None:
            raise pending.error
        return pending.seqs

    def submit(self, items: Sequence[Item], on_done: OnDone, *, durable: bool) -> None:
        """Have entries committed by the thread."""
        self._submitted.put((items, on_done, durable))
        if self._thread is None:
            with self._thread_lock:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="waybill-commit", daemon=True)
                    self._thread.start()

    def close(self) -> None:
        """Commit everything that was submitted, and end the thread."""
        with self._thread_lock:
            if self._thread is not None:
                self._submitted.put(None)
                self._thread.join()
                self._thread = None

    def _commit(self, own: Sequence[_Pending]) -> None:
        # A KeyboardInterrupt at any place leaves the other entries to the threads that wait for them,
        # because each thread removes only its own.
        try:
            for pending in own:
                self._pending[pending] = None
            with self._database.write_lock:
                while not own[-1].done:
                    self._database.refuse_reentry()
                    self._commit_group(self._next_group() or own)
        finally:
            for pending in own:
                self._pending.pop(pending, None)

    def _next_group(self) -> Sequence[_Pending]:
        everybody = list(self._pending)
        if len(everybody) == 1 and not everybody[0].done:
            return everybody  # the most common case, so that a single emitter pays less
        group: list[_Pending] = []
        size_bytes = 0
        for pending in everybody:
            if not pending.done and size_bytes <= _COMMIT_BYTES_MAX:
                group.append(pending)
                size_bytes += sum([len(row.body) for row in pending.rows])
        return group

    def _commit_group(self, group: Sequence[_Pending]) -> None:
        rows = group[0].rows if len(group) == 1 else [row for pending in group for row in pending.rows]
        try:
            durable = any(pending.durable for pending in group)
            seqs = self._database.write(lambda writer: self._insert(writer, rows), durable=durable)
        except Exception as error:  # noqa: BLE001 - raised again for the caller whose entry caused it
            if len(group) == 1:
                group[0].error = error
                group[0].done = True
            else:
                for pending in group:
                    self._commit_group((pending,))
            return
        at = 0
        for pending in group:
            pending.seqs = seqs[at : at + len(pending.rows)]
            at += len(pending.rows)
            pending.done = True

    def _run(self) -> None:
        goes_on = True
        while goes_on:
            batch, goes_on = self._next_batch()
            self._began_s = SYSTEM_CLOCK.monotonic_s()
            self._commit_batch(batch)
            self._began_s = None

    def _next_batch(self) -> tuple[list[_Submitted], bool]:
        """Wait for submitted entries; return them, and whether more may come."""
        batch: list[_Submitted] = []
        size_bytes = 0
        while (submitted := self._submitted.get()) is not None:
            batch.append(submitted)
            size_bytes += sum([len(body) for _, body, _ in submitted[0]])
            if size_bytes > _COMMIT_BYTES_MAX or self._submitted.empty():
                return batch, True
        return batch, False

    def _commit_batch(self, batch: list[_Submitted]) -> None:
        waiting: dict[_Pending, OnDone] = {}
        for items, on_done, durable in batch:
            try:
                waiting[_Pending(self._rows_of(items), durable=durable)] = on_done
            except Exception as error:  # noqa: BLE001 - passed to the caller that submitted it
                on_done(error)
        if waiting:
            self._commit(tuple(waiting))
        for pending, on_done in waiting.items():
            on_done(pending.error or pending.seqs)
