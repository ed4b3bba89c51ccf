"""One process of analyzers for all tests of this folder: each start of it imports much."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from waybill.lineage.analyzers import Worker
from waybill.lineage.index import analysis

if TYPE_CHECKING:
    from collections.abc import Iterator


class _SharedWorker(Worker):
    """A worker whose process stays for the next index."""

    def close(self) -> None:
        """Wait for what was submitted, so that the next index does not get it."""
        while self.pending:
            self.take()


@pytest.fixture(scope="session")
def _worker() -> Iterator[Worker]:
    worker = _SharedWorker()
    yield worker
    Worker.close(worker)


@pytest.fixture(scope="module", autouse=True)
def _one_process_of_analyzers(_worker: Worker) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(analysis, "Worker", lambda: _worker)
        yield
