"""How costs grow with the size of hostile input: twice as much should take about twice as long.

    python -m benchmarks.growth

Each case runs with n, 2n and 4n items; the figures are CPU seconds, the least of the rounds.
"""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.measuring import Results, cpu_s, in_folder, parser_of
from benchmarks.records import HOUR_MS, START_MS

if TYPE_CHECKING:
    from waybill.transport import Settings

SYSTEM: Final = "edge"
TIMES: Final = (1, 2, 4)
RATIO_MAX: Final = 3.0
"""If a cost were quadratic, twice as much would take four times as long."""

Case = Callable[["Settings", int], Callable[[], object]]
"""Prepares a home with a given number of items, and returns the function to measure."""


def main() -> None:
    """Measure each case and print its growth."""
    in_folder(parser_of(__doc__, rounds=2).parse_args(), _measure)


def _measure(arguments: Any, folder: Path) -> Results:  # noqa: ANN401 - an argparse.Namespace
    print(f"{'':<34} {'n':>7} {'n, CPU s':>9} {'2n':>7} {'4n':>7} {'2n / n':>7} {'4n / 2n':>7}")
    results: Results = []
    for name, case, number in CASES:
        _took_s(case, folder, number // 10)  # loads every module that is loaded late
        took_s = [
            min(_took_s(case, folder, times * number) for _ in range(arguments.rounds)) for times in TIMES
        ]
        ratios = [after / before for before, after in itertools.pairwise(took_s)]
        results.append({"case": name, "n": number, "cpu_s": took_s, "ratios": ratios})
        figures = " ".join(f"{one:>7.2f}" for one in (*took_s[1:], *ratios))
        print(f"{name:<34} {number:>7,} {took_s[0]:>9.2f} {figures}", flush=True)
    worst = max(ratio for result in results for ratio in result["ratios"])
    print(f"\nmost growth for twice as much: {worst:.2f} (goal: at most {RATIO_MAX:g})")
    return results


def _took_s(case: Case, folder: Path, number: int) -> float:
    from waybill.transport import Settings

    given = {"home": folder / "home", "system_name": SYSTEM, "provenance_enabled": True, "runner": "none"}
    work = case(Settings.load(given, env={}), number)
    began_s = cpu_s()
    work()
    used_s = cpu_s() - began_s
    shutil.rmtree(folder / "home")
    return used_s


def _event(kind: str, second: int, outputs: Iterable[str] = ()) -> bytes:
    body = {
        "eventTime": datetime.fromtimestamp(START_MS // 1_000 + second, UTC).isoformat(),
        "eventType": kind,
        "producer": "https://example.org",
        "run": {"runId": "run"},
        "job": {"namespace": SYSTEM, "name": "job"},
        "outputs": [{"namespace": "s3://lake", "name": name} for name in outputs],
    }
    return json.dumps(body).encode()


def _names(number: int) -> Iterator[str]:
    return (f"out-{at}" for at in range(number))


def _keep(settings: Settings, bodies: Iterable[bytes]) -> None:
    from waybill.transport import Journal, Kind

    journal = Journal(settings.home, packs=True)
    journal.append_many((Kind.OPENLINEAGE, body, "") for body in bodies)
    journal.close()


def _flush(settings: Settings) -> None:
    from waybill.transport import flush

    report = flush(settings)
    if report.left or report.problems or report.poison:
        raise SystemExit(f"the flush left something: {report}")


def outputs_of_an_event(settings: Settings, number: int) -> Callable[[], object]:
    """One event with this number of outputs."""
    _keep(settings, [_event("COMPLETE", 5, _names(number))])
    return lambda: _flush(settings)


def an_output_in_each_event(settings: Settings, number: int) -> Callable[[], object]:
    """This number of events of one run, each with a different output."""
    _keep(settings, (_event("COMPLETE", 5, [name]) for name in _names(number)))
    return lambda: _flush(settings)


def a_late_failure(settings: Settings, number: int) -> Callable[[], object]:
    """A failure that takes back this number of records."""
    _keep(settings, [_event("COMPLETE", 5, _names(number))])
    _flush(settings)
    _keep(settings, [_event("FAIL", 4)])
    return lambda: _flush(settings)


def explaining(settings: Settings, number: int) -> Callable[[], object]:
    """The explanation of a file with this number of outputs."""
    from waybill.exporter import Wanted, explain
    from waybill.exporter.sources import JournalSource

    _keep(settings, [_event("COMPLETE", 5, _names(number))])
    _flush(settings)
    wanted = Wanted(system_name=SYSTEM)

    def work() -> None:
        if not explain("run", [JournalSource(settings.home)], settings.root, wanted).is_proven:
            raise SystemExit("the explanation proves nothing")

    return work


def systems_in_an_hour(settings: Settings, number: int) -> Callable[[], object]:
    """Figures about this number of systems, each with a file of the same hour."""
    return _figures(settings, number, hours=1)


def systems_with_an_hour_each(settings: Settings, number: int) -> Callable[[], object]:
    """Figures about this number of systems, each with a file of a different hour."""
    return _figures(settings, number, hours=number)


def _figures(settings: Settings, number: int, hours: int) -> Callable[[], object]:
    from waybill.exporter.names import compacted_path, hour_of
    from waybill.exporter.parquet import COMPACTED_FILTERS, encode
    from waybill.exporter.query import scan
    from waybill.facets import FinalState, ProvenanceRecord
    from waybill.facets.arrow import to_table

    for at in range(number):
        completed = START_MS + at % hours * HOUR_MS
        record = ProvenanceRecord(
            did=f"{at}",
            system_name=f"system-{at}",
            data_source="in",
            filename="orders.csv",
            transforms=("unpack",),
            data_sink="out",
            final_state=FinalState.COMPLETE,
            created=completed,
            completed=completed,
        )
        path = settings.root / compacted_path(record.system_name, hour_of(completed))
        path.parent.mkdir(parents=True)
        path.write_bytes(encode(to_table([record]), COMPACTED_FILTERS))

    def work() -> None:
        columns = ("final_state", "system_name", "data_source", "completed")
        if sum(table.num_rows for table in scan(settings.root, columns=columns)) != number:
            raise SystemExit("not every record was found")

    return work


CASES: Final[tuple[tuple[str, Case, int], ...]] = (
    ("outputs of one event", outputs_of_an_event, 25_000),
    ("events with an output each", an_output_in_each_event, 4_000),
    ("outputs taken back by a late FAIL", a_late_failure, 12_500),
    ("outputs explained", explaining, 25_000),
    ("stats: systems in an hour", systems_in_an_hour, 2_500),
    ("stats: systems with an hour each", systems_with_an_hour_each, 500),
)


if __name__ == "__main__":
    main()
