"""`waybill verify`, over a layout that the Tracker and `waybill flush` made."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stores import new_bucket, s3_server

from waybill.cli import records

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
    finding, _ = lines(called("verify", copy, "--json").stdout)
    assert (finding["id"], finding["accepted"], finding["why"]) == (accept.split()[-1], True, "")


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


def test_what_is_beyond_the_limit_is_counted_and_not_rendered(
    called: Run, kept: Kept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = copied(kept, tmp_path)
    (path,) = (copy / "provenance/compacted").rglob("*.parquet")
    path.unlink()
    rendered: list[object] = []
    as_plain = records.as_plain

    def render(value: object) -> object:
        rendered.append(value)
        return as_plain(value)

    monkeypatch.setattr(records, "as_plain", render)
    for limit in (0, 1, 3):
        rendered.clear()
        *shown, summary = lines(called("verify", copy, kept.home, "--json", "--limit", str(limit)).stdout)
        assert [one["kind"] for one in shown].count("difference") == len(rendered) == limit
        assert (summary["findings"], summary["differences"]) == (1, 4)
