"""What runs in Spark's tasks to count rows by their datasets.

Executors need not have Waybill: this module is sent to them with the functions, so it imports nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pyspark import AccumulatorParam

if TYPE_CHECKING:
    from pyspark import Accumulator

_Batch = TypeVar("_Batch")

Counts = tuple[int, int, int, dict[Any, int]]
"""How many rows there were, were looked at, and were of datasets beyond `KEPT_MAX`; and by dataset."""

KEPT_MAX: Final = 10_000
"""How many datasets one task, and the driver, tell apart."""


class CountsSum(AccumulatorParam[Counts]):
    """Adds up what tasks have counted."""

    def zero(self, value: Counts) -> Counts:  # noqa: ARG002 - PySpark's
        """Nothing counted."""
        return (0, 0, 0, {})

    def addInPlace(self, value1: Counts, value2: Counts) -> Counts:  # noqa: N802 - PySpark's name
        """The first, with the second added."""
        rows, looked_at, unnamed, uses = value1
        for dataset, count in value2[3].items():
            if dataset in uses or len(uses) < KEPT_MAX:
                uses[dataset] = uses.get(dataset, 0) + count
            else:
                unnamed += count
        return rows + value2[0], looked_at + value2[1], unnamed + value2[2], uses


def count_rows(
    batches: Iterable[tuple[_Batch, list[Any]]],
    *,
    dataset: Callable[[Any], Any],
    one_in: int,
    counts: Accumulator[Counts],
) -> Iterator[_Batch]:
    """Pass on batches of rows, and count the rows."""
    rows = looked_at = unnamed = 0
    uses: dict[Any, int] = {}
    try:
        for batch, some in batches:
            for row in some:
                if rows % one_in == 0:
                    looked_at += 1
                    given = dataset(row)
                    if given in uses or (given is not None and len(uses) < KEPT_MAX):
                        uses[given] = uses.get(given, 0) + 1
                    elif given is not None:
                        unnamed += 1
                rows += 1
            yield batch
    finally:
        counts.add((rows, looked_at, unnamed, uses))
