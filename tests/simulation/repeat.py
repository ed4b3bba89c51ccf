"""Runs sequences by their seeds: ``.venv/bin/python tests/simulation/repeat.py SEED [LAST SEED] [--first]``.

With ``--first``, the first that fails is the last.
"""

from __future__ import annotations

import logging
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "faults"))
from actions import simulate

REAL_S = time.process_time
MESSAGE_CHARS_MAX = 2_000


def main(first: int, last: int, *, ends_with_first: bool = False) -> int:
    """Run the sequences of these seeds, and print which fail; the result is their number."""
    logging.disable()
    began_s, failed = REAL_S(), 0
    for seed in range(first, last + 1):
        try:
            simulate(seed)
        except Exception as error:
            failed += 1
            notes = "\n  ".join(getattr(error, "__notes__", ()))
            message = str(error)[:MESSAGE_CHARS_MAX]
            sys.stdout.write(f"seed {seed}: {type(error).__name__}: {message}\n  {notes}\n")
            sys.stdout.flush()
            if first == last:
                raise
            if ends_with_first:
                break
    sys.stdout.write(f"{failed} of {last + 1 - first} failed, {REAL_S() - began_s:.1f} s of CPU\n")
    return failed


if __name__ == "__main__":
    seeds = [int(one) for one in sys.argv[1:] if one.isdigit()]
    sys.exit(bool(main(seeds[0], seeds[-1], ends_with_first="--first" in sys.argv)))
