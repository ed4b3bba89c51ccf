"""`waybill find`, over a layout that the Tracker and `waybill flush` made."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow.parquet as pq
import pytest
from contract_server import ContractServer
from events import event

from waybill.exporter import query
from waybill.exporter.layout import Layout
from waybill.facets.arrow import SCHEMA, from_table
from waybill.transport import Journal, Kind, Settings, Tracker, flush
from waybill.transport.config import agree

if TYPE_CHECKING:
    from conftest import Kept, Run


def found(called: Run, kept: Kept, *arguments: str) -> list[dict[str, Any]]:
    done = called("find", "--home", kept.home, "--json", *arguments)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_what_the_journal_let_go_of_is_found_in_the_archive(called: Run, settings: Settings) -> None:
    off = msgspec.structs.replace(settings, provenance_enabled=False)
    with Tracker(settings=off) as tracker:
        for name in ("old.csv", "older.csv"):
            with tracker.file(name, data_source="in"):
                pass
    assert flush(off).left == {}
    journal = Journal(settings.home)
    last = journal.last_seq()
    assert journal.prune(last, 2**60) == last - 1
    journal.close()
    with Tracker(settings=off) as tracker, tracker.file("new.csv", data_source="in"):
        pass
    done = called("find", "--home", settings.home, "--json")
    names = [json.loads(line)["filename"] for line in done.stdout.splitlines()]
    assert sorted(names) == ["new.csv", "old.csv", "older.csv"]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--filename", "caf\udce9.csv"),
        ("--data-source", "\udce9"),
        ("--not-data-sink", "\udce9"),
        ("--annotation", "k=\udce9"),
    ],
)
def test_a_name_that_is_not_in_utf_8_is_refused(called: Run, kept: Kept, option: str, value: str) -> None:
    done = called("find", "--home", kept.home, option, value)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"Invalid value for {option}: {value!r} is not in UTF-8; give the name as" in done.stderr


@pytest.mark.parametrize("command", ["trace", "lineage", "impact", "origins", "search"])
def test_so_it_is_by_every_question_about_a_name(called: Run, kept: Kept, command: str) -> None:
    done = called(command, "caf\udce9", "--home", kept.home)
    assert (done.returncode, done.stdout) == (2, "")
    assert "'caf\\udce9' is not in UTF-8; give the name as `waybill find` shows it" in done.stderr


def told(run: str, kind: str, at: str = "2026-01-01T00:00:00Z") -> tuple[Kind, bytes, str]:
    """An event of a client that knows nothing of Waybill."""
    return Kind.OPENLINEAGE, event(run, kind, at, outputs=["db/table"]), ""


def test_an_answer_is_written_to_a_file_that_has_the_layout_s_columns(
    called: Run, kept: Kept, tmp_path: Path
) -> None:
    path = tmp_path / "found.parquet"

    def save(*arguments: str) -> subprocess.CompletedProcess[str]:
        return called("find", "--home", kept.home, "--parquet", path, *arguments)

    assert save().returncode == 0
    table = pq.read_table(path)
    assert table.schema.remove_metadata() == SCHEMA
    assert [one.did for one in from_table(table)] == [one["did"] for one in found(called, kept)]
    content = path.read_bytes()
    refused = save("--limit", "1")
    assert (refused.returncode, "give another name, or --force" in refused.stderr) == (2, True)
    assert path.read_bytes() == content
    assert "wrote 0 records" in save("--force", "--state", "CANCELLED").stderr
    assert pq.read_table(path).schema.remove_metadata() == SCHEMA
    assert list(tmp_path.iterdir()) == [path]


def test_a_run_that_is_filed_while_it_is_counted_counts_once(
    called: Run, settings: Settings, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    agreed = agree(journal, msgspec.structs.replace(settings, provenance_enabled=True))
    journal.append_many([told("r", "START"), told("r", "COMPLETE")])
    read = query.TailReader.read

    def read_and_file(tails: query.TailReader, told: Settings) -> query.Tail:
        seen = read(tails, told)
        journal.mark(b"settle")
        Layout(journal, agreed, linger_s=0).step()
        return seen

    monkeypatch.setattr(query.TailReader, "read", read_and_file)
    for arguments, count in ((["--count"], "1"), (["--by", "state"], "state\tcount\nCOMPLETE\t1")):
        assert called("find", "--home", settings.home, *arguments).stdout.strip() == count


def test_the_local_zone_is_that_of_the_machine(
    called: Run, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    local, named = (
        called("find", "--home", kept.home, "--tz", zone).stdout for zone in ("local", "Asia/Kolkata")
    )
    assert local == named.replace("Asia/Kolkata", "local") != called("find", "--home", kept.home).stdout
    newest = local.splitlines()[1].partition("\t")[0]
    assert newest in called("find", "--home", kept.home, "--tz", "local", "--since", newest).stdout
    monkeypatch.undo()
    time.tzset()


def test_with_few_descriptors_all_is_found_or_it_is_an_error(
    settings: Settings, script: Path, tmp_path: Path
) -> None:
    journal, files = Journal(settings.home), 40
    fields = {"finalState": "COMPLETE", "created": 1, "completed": 2}
    sent = [{"did": f"d{at}", "systemName": f"system-{at}", **fields} for at in range(files)]
    journal.append(Kind.PROVENANCE, json.dumps(sent).encode())
    journal.close()
    assert len(flush(settings).files) == files
    found = {}
    for limit in (7, 11, 16):
        limited: list[str | Path] = ["sh", "-c", f'ulimit -n {limit} && exec "$0" "$@"', script]
        limited += ["find", "--json", "--home", settings.home]
        done = subprocess.run(limited, cwd=tmp_path, check=False, capture_output=True, text=True, timeout=120)
        found[limit] = (done.returncode, len(done.stdout.splitlines()))
    assert (found[7], found[16]) == ((1, 0), (0, files))
    assert set(found.values()) == {(1, 0), (0, files)}


def test_a_file_is_linked_to_its_job_on_marquez_s_page(called: Run, home: Path) -> None:
    page = "http://marquez.example:3000"
    given = {"home": home, "system_name": "tests one", "runner": "none", "marquez_page_url": page}
    settings = Settings.load(given, env={})
    with Tracker(settings=settings) as tracker, tracker.file("year.csv", data_source="years") as year:
        (month,) = year.split(["month.csv"], data_source="months")
        with month, month.transform("enrich"):
            month.egress("lake")
    server = ContractServer().start()
    flush(settings.with_values({"marquez_url": server.url}, "tests"), timeout_s=60)
    server.refuse()
    months = f"{page}/lineage/job/tests_one/years.months?tableLevelNode=job%3Atests_one%3Ayears.months"
    done = called("find", "--home", home, "--did", month.did)
    assert f"on Marquez's page: {months}\n" in done.stderr
    assert ("tests_one", "years.months") in {(one[0].replace(" ", "_"), one[1]) for one in server.graph.jobs}
    lines = called("find", "--home", home, "--json").stdout.splitlines()
    urls = {one["filename"]: one["marquez_page"] for one in map(json.loads, lines)}
    assert urls == {"month.csv": months, "year.csv": months.replace("years.months", "years")}
    others = called("find", "--home", home, "--did", year.did, "--marquez-page-url", "http://other/m/")
    assert "on Marquez's page: http://other/m/lineage/job/tests_one/years?" in others.stderr
