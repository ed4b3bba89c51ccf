"""`waybill keys`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from waybill.collector.keys import Keys, match
from waybill.transport import Journal

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Run


def test_a_key_is_shown_once_listed_without_it_and_revoked(waybill: Run, home: Path) -> None:
    made = waybill("keys", "add", "spark", "--role", "emit", "--role", "read", "--home", home)
    assert made.returncode == 0, made.stderr
    key = made.stdout.strip()
    journal = Journal(home)
    found = match(Keys(journal).all(), key)
    assert found is not None
    assert (found.name, found.roles) == ("spark", ("emit", "read"))
    listed = waybill("keys", "list", "--json", "--home", home).stdout
    assert (json.loads(listed)["name"], key in listed, found.sha256 in listed) == ("spark", False, False)
    assert waybill("keys", "revoke", "spark", "--home", home).returncode == 0
    assert waybill("keys", "revoke", "spark", "--home", home).returncode == 1
    assert match(Keys(journal).all(), key) is None
    journal.close()
