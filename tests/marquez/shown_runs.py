"""The runs that Marquez shows as RUNNING."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

import requests

if TYPE_CHECKING:
    from contract_server import ContractServer

RUNS_MAX = 1_000


def running_runs(marquez: ContractServer) -> set[str]:
    """The ids of such runs of all jobs that were sent, also of those that only Marquez made."""
    url, found = marquez.upstream or marquez.url, set()
    for namespace, name in list(marquez.graph.jobs):
        job = f"{url}/api/v1/namespaces/{quote(namespace, safe='')}/jobs/{quote(name, safe='')}"
        answer = requests.get(f"{job}/runs", params={"limit": RUNS_MAX}, timeout=60)
        if answer.status_code == 404 and requests.get(job, timeout=60).status_code == 404:
            continue  # It is hidden behind another name.
        answer.raise_for_status()
        runs = answer.json()["runs"]
        assert len(runs) < RUNS_MAX, f"there may be more runs of {name}"
        found |= {run["id"] for run in runs if run["state"] == "RUNNING"}
    return found
