"""`waybill serve`: its command line; what it serves is in tests/collector."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Run


@pytest.mark.parametrize("option", ["--tls-cert", "--tls-key"])
def test_a_certificate_without_its_key_is_exit_code_2_and_so_is_a_key_alone(
    waybill: Run, home: Path, option: str
) -> None:
    done = waybill("serve", "--home", home, option, "server.pem")
    assert (done.returncode, done.stdout) == (2, "")
    assert "go together" in done.stderr
    assert not home.exists()


@pytest.mark.parametrize("option", ["--drain-timeout", "--idle-timeout", "--body-timeout", "--workers"])
def test_a_limit_below_its_least_value_is_exit_code_2(waybill: Run, home: Path, option: str) -> None:
    done = waybill("serve", "--home", home, option, "-1")
    assert (done.returncode, done.stdout) == (2, "")
    assert option in done.stderr
    assert not home.exists()
