"""One process of analyzers for many tests: each start of it imports much."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from waybill.lineage.analyzers import Worker, worker
from waybill.lineage.index import analysis


class _SharedWorker(Worker):
    """A worker whose process stays for the next user."""

    def close(self) -> None:
        """Wait for what was submitted, so that the next user does not get it."""
        while self.pending:
            self.take()


@contextlib.contextmanager
def shared_worker() -> Iterator[Worker]:
    """Have a worker that ends with this block alone."""
    shared = _SharedWorker()
    yield shared
    Worker.close(shared)


@contextlib.contextmanager
def used_by_all(shared: Worker) -> Iterator[None]:
    """Have the indexes and commands of this process use a worker instead of their own."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (analysis, worker):
            patch.setattr(module, "Worker", lambda: shared)
        yield
