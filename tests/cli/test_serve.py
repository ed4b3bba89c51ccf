"""`waybill serve`: its command line; what it serves is in tests/collector."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conftest import Run


def test_where_it_listens_is_told_in_json(script: Path, home: Path) -> None:
    command = [str(script), "serve", "--home", str(home), "--listen", "127.0.0.1:0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as serving:
        assert serving.stdout is not None
        said = json.loads(serving.stdout.readline())
        with urllib.request.urlopen(f"{said['url']}/health/live") as reply:  # noqa: S310 - its own
            assert reply.status == 200
        serving.terminate()
    assert (said["home"], serving.returncode) == (str(home), 0)


def test_a_certificate_that_is_of_no_use_is_exit_code_2_and_is_named(
    called: Run, home: Path, tmp_path: Path
) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    for file, name in ((cert, "cert"), (key, "key")):
        done = called("serve", "--home", home, "--tls-cert", cert, "--tls-key", key)
        assert (done.returncode, done.stdout) == (2, "")
        assert f"tls_{name} = '{file}' (from --tls-{name}): cannot be read: it is not there" in done.stderr
        file.write_text("no PEM", encoding="utf-8")
    done = called("serve", "--home", home, "--tls-cert", cert, "--tls-key", key)
    assert (done.returncode, "listen" in done.stderr) == (2, False)
    assert f"tls_cert = '{cert}' (from --tls-cert): cannot be used with the key {key}; use PEM" in done.stderr
    assert not home.exists()
