"""`waybill keys`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from waybill.collector.keys import Keys, match
from waybill.transport import Journal

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Run

pytestmark = pytest.mark.usefixtures("made_home")


def test_a_key_is_shown_once_listed_without_it_and_revoked(called: Run, home: Path) -> None:
    made = called("keys", "add", "spark", "--role", "emit", "--role", "read", "--home", home)
    assert made.returncode == 0, made.stderr
    key = made.stdout.strip()
    journal = Journal(home)
    found = match(Keys(journal).all(), key)
    assert found is not None
    assert (found.name, found.roles) == ("spark", ("emit", "read"))
    listed = called("keys", "list", "--json", "--home", home).stdout
    assert (json.loads(listed)["name"], key in listed, found.sha256 in listed) == ("spark", False, False)
    assert called("keys", "revoke", "spark", "--home", home).returncode == 0
    assert called("keys", "revoke", "spark", "--home", home).returncode == 2
    assert match(Keys(journal).all(), key) is None
    assert "lets nobody in" in called("keys", "list", "--home", home).stderr
    journal.close()


def test_a_name_that_another_key_has_is_exit_code_2_and_leaves_that_key(called: Run, home: Path) -> None:
    words = ("keys", "add", "spark", "--role", "emit", "--home", home)
    key = called(*words).stdout.strip()
    done = called(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "waybill: there is a key spark already; revoke it first, or give another name\n"
    assert match(Keys(Journal(home)).all(), key) is not None
