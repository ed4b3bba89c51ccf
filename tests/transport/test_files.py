"""Publishing files: whole or not at all, and without leftovers of crashes."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from waybill.transport.files import Files, publish_alone, publish_new


def test_publishing_alone_makes_the_folder_and_sweeps_what_a_crash_left_of_this_file(tmp_path: Path) -> None:
    folder = tmp_path / "a/b"
    publish_alone(Files(), folder / "one.json", b"1")
    (folder / ".one.json.0123abcd.tmp").touch()
    (folder / ".other.json.0123abcd.tmp").touch()
    publish_alone(Files(), folder / "one.json", b"2")
    assert (folder / "one.json").read_bytes() == b"2"
    assert sorted(path.name for path in folder.iterdir()) == [".other.json.0123abcd.tmp", "one.json"]


def test_a_new_file_needs_no_file_system_with_links(tmp_path: Path) -> None:
    class Unlinked(Files):
        def link(self, source: Path, target: Path) -> None:
            raise PermissionError(errno.EPERM, "no links here", str(source), None, str(target))

    path = tmp_path / "one"
    publish_new(Unlinked(), path, b"1")
    publish_new(Unlinked(), path, b"1")
    with pytest.raises(FileExistsError) as refused:
        publish_new(Unlinked(), path, b"2")
    assert Path(refused.value.filename2) == path
    assert path.read_bytes() == b"1"
    assert list(tmp_path.iterdir()) == [path]


def test_the_name_of_a_folder_whose_maker_died_is_made_durable_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").mkdir()
    synced: list[Path] = []
    monkeypatch.setattr(os, "fsync", lambda found: synced.append(Path(f"/proc/self/fd/{found}").readlink()))
    Files().make_folder(tmp_path / "a")
    assert synced == [tmp_path]
    Files().make_folder(tmp_path / "a/b")
    assert synced == [tmp_path, tmp_path, tmp_path / "a"]
    synced.clear()
    Files().make_folder(tmp_path / "a")
    assert synced == [], "what is in it was put there once its name was durable"


def test_a_folder_in_one_that_nobody_can_have_made_and_that_knows_no_fsync_is_used() -> None:
    Files().make_folder(Path("/proc/self"))
