"""`waybill where` and `GET /where`: what became of an entry, from the journal to where it was exported."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from served import DID, event, record
from typer.testing import CliRunner

from waybill.cli.app import app
from waybill.exporter import export, open_destination
from waybill.exporter.query import Located
from waybill.exporter.query.locate import Place
from waybill.lineage.answers.receipts import receipt_status
from waybill.transport import Journal, Kind, Settings, flush
from waybill.transport.journal import Receipt

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Open

    from waybill.lineage.answers import ReceiptStatus

FILE = "provenance/compacted/edge/20260131/12.parquet"


def where(home: Path, receipt: str) -> list[str]:
    """What the command tells of a receipt."""
    done = CliRunner().invoke(app, ["where", receipt, "--home", str(home)])
    assert done.exit_code == 0, done.output
    return done.stdout.splitlines()


def look(home: Path, text: str) -> ReceiptStatus:
    receipt, journal = Receipt.parse(text), Journal(home)
    assert receipt
    found = receipt_status(journal, home, receipt)
    journal.close()
    assert found
    return found


def test_an_entry_is_followed_from_the_journal_to_where_it_was_exported(
    inside: Open, home: Path, tmp_path: Path
) -> None:
    backends = [{"name": "copy", "backend": "file", "endpoint": str(tmp_path / "copy.jsonl")}]
    options = {"backends": json.dumps(backends), "provenance_enabled": True, "home": home}
    collector = inside(provenance_enabled=True, backends=options["backends"])
    kept = collector.post("/provenance", json.dumps([record(), record(did="b")]).encode())
    receipt = kept.headers["waybill-receipt"]
    said = collector.post("/api/v1/lineage", event()).headers["waybill-receipt"]
    found = collector.get(f"/where?receipt={receipt}").json
    assert (found["receipt"], found["in_journal"]) == (receipt, True)
    assert collector.get(f"/where?receipt={receipt}0").status == 404
    assert collector.get("/where?receipt=mine").status == 400
    assert collector.get("/where").status == 400
    report = flush(Settings.load(options, origin="tests", env={}, cwd=tmp_path), timeout_s=60)
    assert (report.left, report.files) == ({}, (FILE,))

    done = dict.fromkeys(("archive", "copy", "index", "keys", "layout"), "done")
    compacted = Located(file=FILE, place=Place.COMPACTED)
    assert (look(home, receipt).projections, look(home, receipt).files) == (done, [compacted])
    assert (look(home, said).projections, look(home, said).files) == (done, [])
    assert f"waybill explain {DID}" in "\n".join(where(home, said))
    assert look(home, receipt).remark is None
    there = str(tmp_path / "there")
    export(home, open_destination(there))
    assert look(home, receipt).files == [Located(file=FILE, place=Place.COMPACTED, exported=(there,))]
    export(home, open_destination(there), delete_after=True)
    assert look(home, receipt).files == [Located(file=FILE, place=Place.REMOVED, exported=(there,))]

    assert where(home, receipt)[-1] == f"removed {FILE}, exported to {there}"


def test_a_file_in_a_summary_is_said_to_be_in_one(home: Path, tmp_path: Path) -> None:
    one = {"backend": "file", "endpoint": str(tmp_path / "copy.jsonl"), "detail": "summary"}
    settings = Settings.load({"home": home, "backends": [one]}, origin="tests", env={}, cwd=tmp_path)
    facets = {"waybill_deltaFile": {"did": "d", "dataSource": "orders"}}
    journal = Journal(home)
    body = json.loads(event(eventType="COMPLETE")) | {"run": {"runId": "d", "facets": facets}}
    seq = journal.append(Kind.OPENLINEAGE, json.dumps(body).encode())
    receipt = f"{journal.node}-{seq}"
    journal.close()
    assert flush(settings, timeout_s=60).left == {}
    assert look(home, receipt).projections["file"] == "in a summary"
    sent = [json.loads(line) for line in (tmp_path / "copy.jsonl").read_text().splitlines()]
    assert [one["eventType"] for one in sent] == ["START", "COMPLETE"]
    assert [one["run"]["facets"]["waybill_summary"]["records"] for one in sent] == [1, 1]


def test_a_receipt_of_an_earlier_node_says_what_became_of_its_entry(home: Path, journal: Journal) -> None:
    journal.append_many((Kind.OPENLINEAGE, b"%d" % at, "") for at in range(5))
    first = journal.node
    journal.renew_node(first, "it was put back", lost=(4, 9))
    journal.append(Kind.OPENLINEAGE, b"new")
    second = journal.node
    assert (look(home, f"{first}-3").in_journal, look(home, f"{first}-3").remark) == (True, None)
    assert "used this number twice" in str(look(home, f"{first}-5").remark)
    lost = look(home, f"{first}-8")
    assert (lost.in_journal, lost.projections) == (False, {})
    assert "no longer has it" in str(lost.remark)
    assert "lost" in where(home, f"{first}-8")[0]
    assert look(home, f"{second}-6").in_journal
    for never in (f"{first}-10", f"{second}-7"):
        receipt = Receipt.parse(never)
        assert receipt
        assert receipt_status(journal, home, receipt) is None
