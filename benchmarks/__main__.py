"""``python -m benchmarks``: every figure of docs/benchmarks.md in turn, on an otherwise idle machine."""

from __future__ import annotations

import subprocess
import sys

BENCHMARKS = (
    ("startup",),
    ("emit",),
    ("emit", "--backends"),
    ("fingerprint",),
    ("compact",),
    ("compact", "--backfill", "--only", "waybill"),
    ("growth",),
    ("flush",),
    ("flush", "--no-archive"),
    ("rebuild",),
    ("rebuild", "--events", "10000000", "--hours", "240", "--only", "waybill", "--rounds", "1"),
    ("tracked",),
    ("spark",),
    ("spark", "--events", "10000000", "--hours", "240", "--rounds", "1"),
    ("ingest",),
    ("ingest", "--backends"),
    ("steady", "--rate", "20000", "40000", "80000", "--seconds", "60"),
    ("lineage",),
    ("lineage", "--hours", "8760", "--keys-only"),
    ("lineage", "--hours", "43800", "--records", "2190000", "--keys-only"),
    (
        "lineage",
        "--records",
        "10000",
        "100000",
        "1000000",
        "10000000",
        "--hours",
        "1",
        "4",
        "24",
        "240",
        "--keys-only",
    ),
    ("journeys",),
    ("datasets",),
    ("levels",),
    ("page",),
    ("packages",),
    ("delivery",),
    ("delivery", "--waiting"),
    ("delivery", "--flow"),
)


def main() -> int:
    """Run each benchmark in its own process; the arguments select some by name."""
    chosen = [command for command in BENCHMARKS if command[0] in sys.argv[1:] or not sys.argv[1:]]
    for name, *options in chosen:
        print(f"\n== python -m benchmarks.{' '.join((name, *options))}\n", flush=True)
        subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *options], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
