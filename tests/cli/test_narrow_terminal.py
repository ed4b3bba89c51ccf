"""A terminal of 80 columns shows every id in one piece."""

from __future__ import annotations

import contextlib
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

import pytest
from events import event
from terminals import each_on_terminal

from waybill.transport import Journal, Kind, Settings, Tracker, flush

if TYPE_CHECKING:
    from conftest import Run

COLUMNS = 80
ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|xxh3-128:[0-9a-f]{32}")
LONG = "a-rather-long-name-of-a-file-that-somebody-has-sent-us-again-2026-01-31.csv"


class Home(NamedTuple):
    """A home with records, open files, files with the same content, and entries that failed."""

    path: Path
    copy: Path
    did: str


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home in which everything has an id and a long name."""
    folder = tmp_path_factory.mktemp("narrow")
    given = {
        "home": folder / "home",
        "system_name": "a-system-with-a-long-name",
        "provenance_enabled": True,
        "runner": "none",
    }
    settings = Settings.load(given, origin="tests", env={}, cwd=folder)
    (folder / LONG).write_text("content", encoding="utf-8")
    with Tracker(settings=settings) as tracker:
        tracker.file(f"open-{LONG}", data_source="the-flow-that-it-came-by")
        for _ in range(2):
            with tracker.file(
                path=folder / LONG, data_source="the-flow-that-it-came-by", fingerprint=True
            ) as file:
                (child,) = file.split([f"child-of-{LONG}"], data_source="the-flow-that-it-came-by")
            child.egress("warehouse")
        flush(settings)
        shutil.copytree(folder / "home" / "provenance", folder / "copy" / "provenance")
        tracker.file(LONG, data_source="the-flow-that-it-came-by").error("damaged")
        flush(settings)
    with contextlib.closing(Journal(settings.home)) as journal:
        seq = journal.append(Kind.OPENLINEAGE, event(str(uuid4()), outputs=["db/table"]))
        journal.poison.set_aside(
            "layout", seq, f"the run {uuid4()} is too large for its file, as is {uuid4()}"
        )
    return Home(settings.home, folder / "copy", child.did)


COMMANDS = [
    ["find"],
    ["find", "--tz", "America/Argentina/Buenos_Aires"],
    ["find", "--open"],
    ["duplicates"],
    ["sql", "SELECT * FROM provenance"],
    ["sql", "SELECT list(did) AS all_dids, count(*) FROM provenance GROUP BY final_state"],
    ["explain", "DID"],
    ["trace", "DID", "--annotations"],
    ["trace", LONG],
    ["poison", "list"],
    ["verify", "HOME", "COPY"],
    ["close-stale", "--dry-run", "--as", "ERROR", "--older-than", "0m"],
]


def words_of(command: list[str], home: Home) -> list[str]:
    places = {"DID": home.did, "HOME": str(home.path), "COPY": str(home.copy)}
    return [*(places.get(word, word) for word in command), "--home", str(home.path)]


@pytest.fixture(scope="module")
def shown(home: Home) -> dict[str, str]:
    """What each command shows on a terminal, without colours: one process runs them all."""
    told = each_on_terminal([words_of(one, home) for one in COMMANDS], COLUMNS)
    plain = [re.sub(r"\r?\x1b\[[0-9;?]*[A-Za-z]", "", text.replace("\r\n", "\n")) for _, text in told]
    return dict(zip(map(" ".join, COMMANDS), plain, strict=True))


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_an_id_is_never_cut(called: Run, home: Home, shown: dict[str, str], command: list[str]) -> None:
    piped = called(*words_of(command, home))
    wanted = ID.findall(piped.stdout + piped.stderr)
    assert wanted, piped
    rows = [row for line in shown[" ".join(command)].splitlines() for row in wrapped(line)]
    assert sorted(found for row in rows for found in ID.findall(row)) == sorted(wanted), "\n".join(rows)


def wrapped(line: str) -> list[str]:
    """The rows that a line takes on the terminal."""
    return [line[at : at + COLUMNS] for at in range(0, max(len(line), 1), COLUMNS)]
