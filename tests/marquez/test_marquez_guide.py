"""docs/marquez.md says what is so: its examples run, its figures are those of the code."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from waybill.facets.standard import Owner, job_notes_of
from waybill.marquez.backend import answers, client
from waybill.marquez.delivery import circuit, dead_letter_box, pending, schedule

if TYPE_CHECKING:
    from delivering import Site, Worker


GUIDE = (Path(__file__).parents[2] / "docs" / "marquez.md").read_text(encoding="utf-8")
PROSE = " ".join(GUIDE.split())


def test_the_examples_run(site: Site, home: Path, worker: Worker, tmp_path: Path) -> None:
    # Its facet names no schema: Marquez has that rule, and admission has not.
    refused = {"documentation": {"_producer": "tests"}}
    bad = site.keep("run", job={"namespace": "tests", "name": "job", "facets": refused})
    worker.run()
    owning, reading, probing = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    run(owning, home, tmp_path)
    jobs = [entry.run_event.job for entry in site.journal.read(0) if entry.run_event is not None]
    owned = [job_notes_of(job).owners for job in jobs if job.name == "orders"]
    assert owned == [(Owner("team:flights", "MAINTAINER"),)] * 2
    worker.run()
    out = run(reading, home, tmp_path)
    words = '{"errors":["job.facets.documentation._schemaURL must not be null"]}'
    assert out == f"{bad} run run 422 {words}\n"
    assert b'"runId": "run"' in (tmp_path / f"{bad}.json").read_bytes()
    out = run(probing.replace("http://localhost:5000", site.marquez.url), home, tmp_path)
    assert re.fullmatch(r"\d+\.\d+ None\n", out)
    assert site.journal.cursor("marquez") == site.journal.last_seq()


def run(code: str, home: Path, folder: Path) -> str:
    environment = {**os.environ, "WAYBILL_HOME": str(home)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, text=True)
    return done.stdout


def test_the_figures_are_those_of_the_code() -> None:
    said = [
        f"no more than {pending.HELD_MAX:,} at a time",
        f"more than {pending.HELD_MAX:,} runs fail at once",
        f"(or {pending.HELD_MAX // pending.BLOCKED_KEY_MAX}, each with {pending.BLOCKED_KEY_MAX} events",
        f"usually at most {pending.READ_MAX}",
        f"no response in {client.ANSWER_TIMEOUT_S:.0f} s",
        f"up to {circuit.RETRY_AFTER_MAX_S / 60:.0f} minutes",
        f"every {circuit.BARRED_RETRY_S / 2:.0f} to {circuit.BARRED_RETRY_S:.0f} s",
        f"within {schedule.KEY_EVERY_S:.0f} s after you set a new",
        f"every {circuit.DENIED_RETRY_S / 120:.0f} to {circuit.DENIED_RETRY_S / 60:.0f} minutes tests",
        f"back-off of up to {circuit.BACKOFF_BASE_S} s",
        f"2 s and so on to {schedule.RETRY_EVERY_MAX_S:.0f} s",
        f"pauses of up to {circuit.PROBE_ANSWERING_EVERY_MAX_S:.0f} s while the backend answers",
        f"up to {circuit.PROBE_EVERY_MAX_S:.0f} s while it does not",
        f"failed {schedule.POISON_TRIES} times in a row and for {schedule.POISON_AFTER_S / 60:.0f} minutes",
        f"{client.COMPRESS_FROM_BYTES // 1024} KiB or more",
        f"keeps the last {dead_letter_box.LETTERS_MAX:,}",
        f"up to {dead_letter_box.BODIES_MAX_BYTES // 2**20} MiB in total",
    ]
    assert [words for words in said if words not in PROSE] == []


def test_the_table_of_answers_is_the_verdict_on_each() -> None:
    verdict = answers.Verdict
    for expected, some in (
        (verdict.DELIVERED, (200, 201, 202, 204)),
        (verdict.REFUSED, (400, 413, 415, 422)),
        (verdict.DENIED, (401, 403)),
        (verdict.AWAY, (429,)),
        (verdict.UNWELL, (500, 502, 503, 504, 507, 408, 409, 418, 451, 100, 600)),
    ):
        assert {answers.judge(status) for status in some} == {expected}
    row = next(line for line in GUIDE.splitlines() if line.startswith("| 404"))
    statuses = [int(text) for text in re.findall(r"\b\d{3}\b", row)]
    assert len(statuses) == 5
    assert {answers.judge(status) for status in (*statuses, 301, 302, 307, 308)} == {verdict.BARRED}
