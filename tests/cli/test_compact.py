"""`waybill compact`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from stores import new_bucket, s3_server

from waybill.exporter.compaction import RawWriter
from waybill.exporter.names import RawName
from waybill.facets import FinalState, ProvenanceRecord
from waybill.lineage import find

if TYPE_CHECKING:
    from conftest import Run

START_MS = 1_767_225_600_000
QUICK_SPARK = (
    "--driver-java-options '-XX:TieredStopAtLevel=1 -XX:+UseSerialGC' --conf spark.ui.enabled=false "
    "--conf spark.sql.shuffle.partitions=2 pyspark-shell"
)
"""A JVM that lives for seconds would spend most of them on code that it never uses and empty partitions."""


def written(root: Path) -> list[ProvenanceRecord]:
    """A root with records in two raw files for each of two hours."""
    records = [
        ProvenanceRecord(
            did=f"d{at}",
            system_name="edge",
            data_source="in",
            filename="f",
            transforms=(),
            final_state=FinalState.COMPLETE,
            created=START_MS,
            completed=START_MS + at * 1_800_000,
        )
        for at in range(4)
    ]
    for at in range(2):
        RawWriter(root).write(RawName("aa", at + 1, at + 1), records)
    return records


@pytest.mark.parametrize("engine", ["embedded", pytest.param("spark", marks=pytest.mark.spark_truth)])
@pytest.mark.timeout(300)
def test_either_engine_makes_one_file_of_the_raw_files_of_an_hour(
    called: Run, waybill: Run, tmp_path: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", QUICK_SPARK)
    root = tmp_path / "root"
    records = written(root)
    run = waybill if engine == "spark" else called  # a JVM stays in the process that has begun one
    done = run("compact", "--root", root, "--engine", engine, "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["files"] == [f"provenance/compacted/edge/20260101/{hour}.parquet" for hour in ("00", "01")]
    assert not list(root.glob("provenance/raw/*/*/*"))
    assert sorted(find(root), key=lambda record: record.did) == records


def test_a_bucket_is_compacted_by_its_url(
    called: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = written(tmp_path)
    with s3_server() as address:
        bucket = new_bucket(address, monkeypatch)
        for path in tmp_path.rglob("*.parquet"):
            bucket.put(str(path.relative_to(tmp_path)), path.read_bytes())
        done = called("compact", bucket.url)
        assert done.returncode == 0, done.stderr
        assert sorted(
            f"{bucket.url}/{path}" for path in bucket.files() if path.endswith(".parquet")
        ) == sorted(done.stdout.splitlines())
        assert sorted(row.did for row in bucket.rows()) == [row.did for row in records]


def test_a_damaged_file_is_quarantined_and_named_by_compact_status_and_verify(
    called: Run, tmp_path: Path
) -> None:
    written(tmp_path)
    (tmp_path / "provenance/raw/20260101/00/aa-1-1.parquet").write_bytes(b"nonsense")
    done = called("compact", "--root", tmp_path)
    assert done.returncode == 1
    assert "aa-1-1.parquet was quarantined" in done.stderr
    assert len(done.stdout.splitlines()) == 2
    done = called("compact", "--root", tmp_path, "--json")
    assert (done.returncode, json.loads(done.stdout)["aside"]) == (0, [])
    found = json.loads(called("status", "--root", tmp_path, "--json").stdout)
    (kept,) = found["damaged"]
    assert (tmp_path / kept).read_bytes() == b"nonsense"
    done = called("status", "--root", tmp_path)
    assert (done.returncode, "1 damaged file was set aside" in done.stdout) == (1, True)
    verified = called("verify", tmp_path)
    assert verified.returncode == 1
    assert f"damaged {tmp_path / kept}: " in verified.stdout
