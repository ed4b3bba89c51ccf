"""`waybill serve`: its command line; what it serves is in tests/collector."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from pathlib import Path


def test_where_it_listens_is_told_in_json(script: Path, home: Path) -> None:
    command = [str(script), "serve", "--home", str(home), "--listen", "127.0.0.1:0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as serving:
        assert serving.stdout is not None
        said = json.loads(serving.stdout.readline())
        with urllib.request.urlopen(f"{said['url']}/health/live") as reply:  # noqa: S310 - its own
            assert reply.status == 200
        serving.terminate()
    assert (said["home"], serving.returncode) == (str(home), 0)
