"""Track files through a small plain-Python pipeline, then print the record of each."""

from __future__ import annotations

import csv
import gzip
import tempfile
from collections import defaultdict
from pathlib import Path

from waybill.facets import fold
from waybill.transport import Journal, Settings, Tracker

ORDERS = "order,region,amount\n1,eu,20\n2,us,15\n3,eu,7\n"


def write_csv(path: Path, rows: list[dict[str, str]]) -> None:
    """Write rows under a header."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def handle(tracker: Tracker, path: Path, lake: Path) -> None:
    """Unpack a file, split it by region, and send each part where it belongs."""
    with tracker.file(path.name, data_source="sftp-in") as f:
        with f.transform("decompress"), gzip.open(path, "rt", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        if not rows:
            f.filter("no orders in it")
            return
        with f.transform("split-by-region"):
            regions = defaultdict(list)
            for row in rows:
                regions[row["region"]].append(row)
        parts = f.split([f"{region}.csv" for region in regions])

    for part, orders in zip(parts, regions.values(), strict=True):
        with part:
            part.annotate(orders=len(orders))
            write_csv(lake / part.filename, orders)
            part.egress("lake")
            # The same file on a second path, with its own transform.
            with part.branch() as summary:
                with summary.transform("total"):
                    total = sum(int(order["amount"]) for order in orders)
                    summary.annotate(total=total)
                summary.egress("dashboard")


def main() -> None:
    """Handle a good file, an empty one and a damaged one."""
    with tempfile.TemporaryDirectory() as folder:
        inbox, lake = Path(folder, "in"), Path(folder, "lake")
        inbox.mkdir()
        lake.mkdir()
        (inbox / "monday.csv.gz").write_bytes(gzip.compress(ORDERS.encode()))
        (inbox / "sunday.csv.gz").write_bytes(gzip.compress(ORDERS.splitlines()[0].encode()))
        (inbox / "tuesday.csv.gz").write_bytes(ORDERS.encode())

        # A temporary home and no runner, so that nothing is left behind; a pipeline needs only Tracker().
        settings = Settings.load({"home": Path(folder, "home"), "runner": "none", "provenance_enabled": True})
        with Tracker(settings=settings, system_name="example") as tracker:
            for path in sorted(inbox.iterdir()):
                try:
                    handle(tracker, path, lake)
                except OSError as error:
                    print(f"{path.name}: {error}")

        journal = Journal(settings.home)
        events = [entry.run_event for entry in journal.read(after=0)]
        journal.close()
        records = fold([event for event in events if event is not None], system_name="example")
        for record in sorted(records, key=lambda record: (record.filename, record.transforms)):
            way = " > ".join([record.data_source, *record.transforms, record.data_sink or "-"])
            print(f"{record.final_state:8} {record.filename:14} {way}  {record.annotations or ''}".rstrip())


if __name__ == "__main__":
    main()
