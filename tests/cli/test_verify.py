"""`waybill verify`, over a layout that the Tracker and `waybill flush` made."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layouts import START_MS
from stores import new_bucket, s3_server

from waybill.transport import Journal, Kind, Settings, flush

if TYPE_CHECKING:
    import pytest
    from conftest import Kept, Run


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def copied(kept: Kept, tmp_path: Path) -> Path:
    """A copy of a root, to be changed."""
    for folder in ("provenance", "events"):
        shutil.copytree(kept.home / folder, tmp_path / "copy" / folder)
    return tmp_path / "copy"


def test_two_stories_under_one_did_are_shown_and_are_no_finding(called: Run, settings: Settings) -> None:
    said = {"did": "d", "systemName": "edge", "transforms": [], "finalState": "COMPLETE", "created": 1}
    journal = Journal(settings.home)
    for name in ("one.csv", "other.csv"):
        told = {**said, "dataSource": "in", "filename": name, "completed": START_MS}
        journal.append(Kind.PROVENANCE, json.dumps([told]).encode())
    journal.close()
    assert flush(settings).problems == {}
    done = called("verify", "--home", settings.home, "--json")
    assert done.returncode == 0, done.stderr
    collision, summary = lines(done.stdout)
    assert [one["filename"] for one in collision["stories"]] == ["one.csv", "other.csv"]
    assert (collision["did"], summary["collisions"], summary["findings"]) == ("d", 1, 0)
    shown = called("verify", "--home", settings.home)
    assert (shown.returncode, "two stories of d" in shown.stdout) == (0, True)
    assert "1 collision" in shown.stderr


def test_the_commands_that_are_told_about_a_damaged_file_mend_it(
    called: Run, kept: Kept, tmp_path: Path
) -> None:
    copy = copied(kept, tmp_path)
    (path,) = (copy / "provenance/compacted").rglob("*.parquet")
    path.write_bytes(path.read_bytes()[:100])
    given = ("--root", copy, "--home", kept.home)
    for words in (("find", *given), ("explain", kept.first, *given), ("verify", copy)):
        done = called(*words)
        told = " ".join(f"{done.stdout}{done.stderr}".split())
        assert done.returncode == 1, told
        repair = f"`waybill repair --root {copy}`"
        assert (told.count(str(path)), told.count(repair), "footer" in told) == (1, 1, False), told
    assert called(*shlex.split(repair.strip("`"))[1:], "--home", kept.home).returncode == 0
    done = called("verify", copy)
    assert (done.returncode, "waybill repair" in done.stdout) == (1, False), done.stdout
    (accept,) = re.findall(r"filed again: settle it with `waybill (verify .* --accept \w+)`", done.stdout)
    assert called(*shlex.split(accept)).returncode == 0
    done = called("verify", copy)
    assert (done.returncode, "settle it" in done.stdout) == (0, False), done.stdout
    assert "3 files with 4 rows, 0 findings, 1 accepted" in done.stderr


def test_a_finding_is_accepted_by_its_id_and_then_counted_apart(
    called: Run, kept: Kept, tmp_path: Path
) -> None:
    copy = copied(kept, tmp_path)
    (path,) = (copy / "provenance/compacted").rglob("*.parquet")
    path.unlink()
    unknown = called("verify", copy, "--accept", "0123456789ab", "--json")
    assert (unknown.returncode, "nothing was accepted" in unknown.stderr) == (2, True)
    found = lines(unknown.stdout)[0]["id"]
    done = called("verify", copy, "--accept", found, "--why", "on purpose", "--json")
    assert (done.returncode, lines(done.stdout)[-1]["accepted"]) == (0, 1), done.stderr
    finding, summary = lines(called("verify", copy, "--json").stdout)
    assert (finding["id"], finding["accepted"], finding["why"]) == (found, True, "on purpose")
    assert (summary["findings"], summary["accepted"]) == (0, 1)


def test_what_was_exported_to_a_bucket_is_verified_there(
    called: Run, kept: Kept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = copied(kept, tmp_path)
    with s3_server() as address:
        bucket = new_bucket(address, monkeypatch)
        assert called("export", bucket.url, "--root", root).returncode == 0
        done = called("verify", root, bucket.url, "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        assert lines(done.stdout)[-1]["differences"] == 0
        (path,) = (one for one in bucket.files() if "/compacted/" in one)
        bucket.put(path, b"nonsense")
        damaged = called("verify", bucket.url)
        assert damaged.returncode == 1
        for kind in ("unreadable", "manifest"):
            assert f"{kind} {bucket.url}/{path}: it is " in damaged.stdout
        assert "waybill repair" not in damaged.stdout, "it works on folders only"
        assert "/tmp" not in damaged.stdout  # noqa: S108 - what must not be there
        nowhere = called("verify", f"{bucket.url}/none")
        assert (nowhere.returncode, nowhere.stdout) == (1, "")
        assert "there are no provenance files below" in nowhere.stderr
