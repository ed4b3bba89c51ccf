"""One process of analyzers for all tests of this folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from one_worker import shared_worker, used_by_all

if TYPE_CHECKING:
    from collections.abc import Iterator

    from waybill.lineage.analyzers import Worker


@pytest.fixture(scope="session")
def _worker() -> Iterator[Worker]:
    with shared_worker() as worker:
        yield worker


@pytest.fixture(scope="module", autouse=True)
def _one_process_of_analyzers(_worker: Worker) -> Iterator[None]:
    with used_by_all(_worker):
        yield
