"""The resources that a database holds and releases."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from waybill.transport import Journal, Kind

DESCRIPTORS = Path("/proc/self/fd")


pytestmark = pytest.mark.skipif(
    not DESCRIPTORS.is_dir(), reason="descriptors are counted as Linux lists them"
)


def test_a_journal_that_nobody_closes_leaves_no_descriptor_behind(tmp_path: Path) -> None:
    Journal(tmp_path).append(Kind.OPENLINEAGE, b"first")
    gc.collect()
    before = len(list(DESCRIPTORS.iterdir()))
    for number in range(20):
        Journal(tmp_path).append(Kind.OPENLINEAGE, b"%d" % number)
    gc.collect()
    assert len(list(DESCRIPTORS.iterdir())) <= before


def test_a_closed_journal_opens_anew_and_is_closed_again(tmp_path: Path) -> None:
    before = set(DESCRIPTORS.iterdir())
    journal = Journal(tmp_path)
    for number in range(3):
        journal.append(Kind.OPENLINEAGE, b"%d" % number)
        journal.read(0)
        journal.close()
        assert set(DESCRIPTORS.iterdir()) <= before
    assert journal.last_seq() == 3
    journal.close()
