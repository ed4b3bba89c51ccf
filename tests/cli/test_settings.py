"""`waybill settings`."""

from __future__ import annotations

import contextlib
import json
import os
from typing import TYPE_CHECKING

import pytest

from waybill.transport import Journal, Settings, locks
from waybill.transport.config import agree

if TYPE_CHECKING:
    from conftest import Run

pytestmark = pytest.mark.usefixtures("made_home")


def test_what_a_live_runner_works_by_is_shown_whatever_was_given(
    called: Run, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, variable = settings.home, "WAYBILL_PROVENANCE_ENABLED"
    monkeypatch.setenv(variable, "0")
    with contextlib.closing(Journal(home)) as journal:
        agree(journal, Settings.load({"home": home, "provenance_enabled": True}, env={}))
        lease = locks.take(home)
        assert lease is not None
        shown = called("settings", "--home", home).stdout
        found = json.loads(called("status", "--home", home, "--json").stdout)
        lease.release()
    assert (found["runner_alive"], found["runner_pid"]) == (True, os.getpid())
    where = f"the home, whose runner is alive; not False from environment {variable}"
    assert f"provenance_enabled\tTrue\t{where}\n" in shown
