"""A third party's package with projections, which Python sees as really installed."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from waybill.transport import Settings, Tracker

MODULE = '''
import json, os, signal, time
from pathlib import Path
from waybill.transport import Kind, Step
from waybill.transport.runner import Progress, note_published

def trap(body, folder):
    """The ways in which an entry can harm the process that applies it."""
    if body == b"raise":
        raise ValueError("a trap")
    if body == b"hang":
        if (folder / "apart").exists():
            (folder / "hangs").write_text(str(os.getpid()))
            time.sleep(600)
        (folder / "apart").touch()
        raise ValueError("a trap")
    if body == b"kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if body == b"allocate":
        raise ValueError(len([bytes(2**28) for _ in range(12)]))
    if body == b"short-once" and not (folder / "was short").exists():
        (folder / "was short").touch()
        raise MemoryError
    if body == b"large":
        try:
            bytes(2**30)
        except MemoryError as error:
            with (folder / "short").open("a") as file:
                file.write(f"{os.getpid()}\\n")
            raise RuntimeError("can't start new thread") from error  # as `threading` does then

def note_asked(folder):
    with (folder / "asked").open("a") as file:
        file.write("asked\\n")

class Copy:
    """Copies entries into a file; a script decides the outcome of each step."""
    name = "copy"
    def __init__(self, journal, settings):
        self.journal, self.folder = journal, Path(os.environ["WAYBILL_TEST_FOLDER"])
        self.stores = not (self.folder / "stores nothing").exists()
        self.cursor = journal.cursor(self.name)
        works_by = [str(settings.root), settings.marquez_url, settings.archive_enabled, journal.max_bytes]
        (self.folder / "works by.new").write_text(json.dumps(works_by))
        (self.folder / "works by.new").rename(self.folder / "works by")  # whole for whoever waits for it
    def step(self):
        while (self.folder / "slow").exists():
            time.sleep(0.01)
        if (self.folder / "down").exists():
            note_asked(self.folder)
            retry_s = float((self.folder / "down").read_text() or 0.05)
            return Step(retry_s=retry_s, problem="the backend is down; start it")
        if (self.folder / "bug").exists():
            raise RuntimeError("a bug")
        entries = self.journal.feed(self.name, self.cursor, limit=7)
        if not entries:
            return Step(retry_s=0.001) if (self.folder / "hasty").exists() else Step()
        if (self.folder / "gathers").exists() and not any(entry.kind is Kind.MARK for entry in entries):
            note_asked(self.folder)
            return Step(retry_s=60.0, gathers=True)
        for entry in entries:
            trap(entry.body, self.folder)
        with (self.folder / "copied").open("ab") as file:
            for entry in entries:
                if entry.kind is not Kind.MARK:
                    file.write(entry.body + b"\\n")
        self.cursor = entries[-1].seq
        put, delete = {}, []
        for entry in entries:
            if entry.body == b"flush":
                put, delete = note_published(self.journal, self.name, entry.seq, ["copied"])
        self.journal.commit(self.name, cursor=self.cursor, put=put, delete=delete)
        return Step(applied=len(entries))
    def pending(self):
        if (self.folder / "no count").exists():
            (self.folder / "no count").unlink()
            raise RuntimeError("cannot count")
        return self.journal.last_seq() - self.cursor
    def finish(self):
        (self.folder / "finished").touch()
    def close(self):
        pass

def open_copy(journal, settings):
    return Copy(journal, settings) if "WAYBILL_TEST_FOLDER" in os.environ else None

def tell_progress(journal, projection, seq):
    refused = Path(os.environ["WAYBILL_TEST_FOLDER"]) / "refused"
    if projection == "copy" and refused.exists() and str(seq) in refused.read_text().split():
        return Progress.REFUSED
'''

ENTRY_POINTS = """
[waybill.projections]
copy = third_party:open_copy
broken = third_party:no_such_function

[waybill.progress]
broken = third_party:no_such_function
copy = third_party:tell_progress
"""


@pytest.fixture
def copy_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder that the third party's projection works in."""
    for point in entry_points(group="waybill.projections"):
        point.load()  # once, and not again in each fork that runs a home
    site, folder = tmp_path / "site", tmp_path / "copy"
    info = site / "third_party-1.0.dist-info"
    info.mkdir(parents=True)
    folder.mkdir()
    (site / "third_party.py").write_text(MODULE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: third-party\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("WAYBILL_TEST_FOLDER", str(folder))
    monkeypatch.setattr(
        "waybill.transport.runner.isolation.PAUSES_S", (0.0, 0.0)
    )  # where this process isolates
    yield folder
    sys.modules.pop("third_party", None)


@pytest.fixture
def tracker(settings: Settings) -> Iterator[Tracker]:
    """A Tracker with a home of its own."""
    with Tracker(settings=settings) as made:
        yield made
