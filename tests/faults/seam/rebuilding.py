"""The program that rebuilds a root from lines of events, and the check of the root after any fault.

It rebuilds into a new root and then, after more lines have come, into the existing one.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

from seam.emissions import emission
from seam.files import FaultyFiles
from seam.oracle import check_layout, check_seen, check_visible

from waybill.exporter import Wanted, rebuild
from waybill.exporter.rebuilding import Limits, RebuildReport
from waybill.exporter.sources import LinesSource
from waybill.transport import Kind, Settings
from waybill.transport.files import Files

if TYPE_CHECKING:
    from seam.ledger import Ledger, Teller
    from seam.plan import Plan

WANTED: Final = Wanted(system_name="tests")
WAVES: Final = ((0, 1, 3, 4), (6, 7, 9))
"""The numbers of emissions that are events."""
FRESH: Final = 600
PART_BYTES: Final = 1_500


def run_rebuilding(settings: Settings, plan: Plan, teller: Teller) -> None:
    """Run it from start to end, and again after a fault that it survives."""
    plan.on_strike = lambda call: teller.tell("struck", [call.name, call.path])
    settings.home.mkdir(parents=True)
    files = FaultyFiles(plan)
    known: list[int] = []
    shown = True
    for wave in WAVES:
        known += wave
        add_lines(settings, *wave)
        for number in wave:
            teller.tell("offer", number)
            teller.tell("ack", number)
        start = len(plan.calls)
        whole = False
        # As if run by a timer: failed work is repeated the next time.
        with contextlib.suppress(OSError):
            whole = do_rebuild(settings, files).is_whole
        # An interrupted rebuild completes its own plan, without later lines.
        shown = shown and whole
        if shown:
            teller.tell("shown", known)
        if plan.at is None:
            teller.tell("span", [start, len(plan.calls)])
    plan.ended = True
    if plan.at is not None and not do_rebuild(settings, files).is_whole:
        teller.tell("fault", "the rebuild fails after the fault")
    if plan.at is None:
        for call in plan.calls:
            teller.tell("call", [call.name, call.path])


def do_rebuild(settings: Settings, files: Files) -> RebuildReport:
    """Rebuild from all lines."""
    # Several parts, but one file after the other, so that the calls come in the same order each time.
    source = LinesSource((_lines(settings),), PART_BYTES)
    return rebuild(source, settings.root, WANTED, files=files, limits=Limits(writers=1))


def add_lines(settings: Settings, *numbers: int) -> None:
    """Append the events of emissions to the file."""
    bodies = [
        body for number in numbers for kind, body, _ in emission(number).items if kind is Kind.OPENLINEAGE
    ]
    with _lines(settings).open("ab") as file:
        file.writelines(body + b"\n" for body in bodies)


def rebuild_and_check(settings: Settings, ledger: Ledger) -> None:
    """Check the state after a fault, then rebuild again and check once more.

    Args:
        settings: those of the root under test.
        ledger: the report of its process; emissions made here are added.
    """
    assert not ledger.faults, "\n".join(ledger.faults)
    check_visible(settings.root)
    check_seen(settings.root, ledger)
    # An interrupted rebuild completes its own plan; later lines are for the next.
    assert do_rebuild(settings, Files()).is_whole
    add_lines(settings, FRESH)
    ledger.offered.append(FRESH)
    ledger.acknowledged.add(FRESH)
    assert do_rebuild(settings, Files()).is_whole
    check_layout(settings.root, ledger)
    assert not (settings.root / ".rebuild").exists()


def _lines(settings: Settings) -> Path:
    return settings.home / "lines"
