"""Publishing files: whole or not at all, and without what a crash left."""

from __future__ import annotations

from pathlib import Path

from waybill.transport.files import Files, publish, publish_alone, sweep


def test_publishing_alone_makes_the_folder_and_sweeps_what_a_crash_left_of_this_file(tmp_path: Path) -> None:
    folder = tmp_path / "a/b"
    publish_alone(Files(), folder / "one.json", b"1")
    (folder / ".one.json.0123abcd.tmp").touch()
    (folder / ".other.json.0123abcd.tmp").touch()
    publish_alone(Files(), folder / "one.json", b"2")
    assert (folder / "one.json").read_bytes() == b"2"
    assert sorted(path.name for path in folder.iterdir()) == [".other.json.0123abcd.tmp", "one.json"]


def test_a_sweep_leaves_published_and_hidden_files_alone(tmp_path: Path) -> None:
    publish(Files(), tmp_path / "kept.json", b"1")
    for name in (".lock", "plain.tmp", ".left.json.0123abcd.tmp"):
        (tmp_path / name).touch()
    sweep(Files(), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "kept.json", "plain.tmp"]


def test_a_sweep_of_a_folder_that_does_not_exist_does_nothing(tmp_path: Path) -> None:
    sweep(Files(), tmp_path / "none")
