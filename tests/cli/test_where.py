"""`waybill where`; that it follows an entry to its end is in tests/collector/test_receipt_status.py."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.usefixtures("made_home")
