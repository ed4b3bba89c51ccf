from __future__ import annotations

import difflib
import time

from waybill.transport.likeness import most_alike


def test_short_names_are_compared_as_a_whole() -> None:
    known = ["orders", "order_lines", "borders", "customers"]
    alike = difflib.get_close_matches("orderz", known, 2, 0.5)
    assert most_alike("orderz", known, 2, likeness_min=0.5) == alike
    assert most_alike("x", known, 2, likeness_min=0.5) == []


def test_of_long_names_the_ends_are_compared_and_each_is_named() -> None:
    known = [f"s3://lake/{'a' * 5_000}/{name}" for name in ("orders", "customers")]
    assert most_alike(f"s3://lake/{'a' * 9_000}/order", known, 1, likeness_min=0.5) == known[:1]


def test_long_names_take_no_longer_than_shorter_ones() -> None:
    def took_s(length: int) -> float:
        known = [("ab" * length)[at : length + at] + str(at) for at in range(20)]
        began_s = time.thread_time()
        most_alike("ba" * (length // 2), known, 5, likeness_min=0.0)
        return time.thread_time() - began_s

    assert min(took_s(40_000) for _ in range(3)) < 20 * max(min(took_s(200) for _ in range(3)), 0.001)
