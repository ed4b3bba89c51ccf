"""Runs sequences by their seeds: ``.venv/bin/python tests/simulation/repeat.py SEED [LAST SEED]``."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from itertools import islice
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "faults"))
from actions import simulate

CPU_S: Callable[[], float] = time.process_time
"""The real clock of a process, which no world changes."""
MESSAGE_CHARS_MAX = 2_000


def run(seed: int) -> tuple[str, float]:
    """Run the sequence of a seed; return what failed, empty if nothing did, and its CPU time in seconds."""
    logging.disable()
    began_s = CPU_S()
    try:
        simulate(seed)
    except Exception as error:  # noqa: BLE001 - whatever is wrong is told with its seed
        notes = "\n  ".join(getattr(error, "__notes__", ()))
        message = str(error)[:MESSAGE_CHARS_MAX]
        return f"seed {seed}: {type(error).__name__}: {message}\n  {notes}\n", CPU_S() - began_s
    return "", CPU_S() - began_s


def main() -> int:
    """Run the sequences of these seeds, as many as the time allows; the result is how many have failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("last", type=int, nargs="?")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1e6, help="no sequence begins after that time")
    parser.add_argument("--first", action="store_true", help="the first that fails is the last")
    given = parser.parse_args()
    if given.last is None:
        logging.disable()
        simulate(given.seed)  # its failure has a traceback
        return 0
    ends_s = time.monotonic() + given.minutes * 60
    failed, done, spent_s = 0, 0, 0.0
    seeds = range(given.seed, given.last + 1)
    waiting = iter(seeds)
    with ProcessPoolExecutor(given.processes, get_context("spawn")) as processes:
        # Each process gets its next seed when it is done with one, so that nothing has to be cancelled.
        running = {processes.submit(run, seed) for seed in islice(waiting, given.processes)}
        while running:
            ended, running = wait(running, return_when=FIRST_COMPLETED)
            for future in ended:
                failure, cpu_s = future.result()
                failed, done, spent_s = failed + bool(failure), done + 1, spent_s + cpu_s
                sys.stdout.write(failure)
                sys.stdout.flush()
            if time.monotonic() < ends_s and not (failed and given.first):
                running |= {processes.submit(run, seed) for seed in islice(waiting, len(ended))}
    left = f"; there was no time for {len(seeds) - done}" if done < len(seeds) else ""
    sys.stdout.write(f"{failed} of {done} sequences failed, {spent_s / done:.1f} s of CPU each{left}\n")
    return failed


if __name__ == "__main__":
    sys.exit(bool(main()))
