"""Numbers as people say them: the same everywhere."""

from __future__ import annotations

import pytest

from waybill.pipelines.yaml_files import duration_s
from waybill.transport.counting import duration_text, size_text


@pytest.mark.parametrize(
    ("seconds", "says"),
    [
        (-5, "0s"),
        (0, "0s"),
        (0.0004, "0s"),
        (0.43, "430ms"),
        (0.9996, "1s"),
        (2, "2s"),
        (1.5, "1s 500ms"),
        (9.9996, "10s"),
        (59.7, "1m"),
        (332, "5m 32s"),
        (3_600, "1h"),
        (3_605, "1h"),
        (90_061, "1d 1h"),
        (40 * 86_400, "40d"),
    ],
)
def test_a_duration_has_its_two_largest_units_and_is_read_as_it_is_said(seconds: float, says: str) -> None:
    assert duration_text(seconds) == says
    assert duration_text(duration_s(says)) == says


@pytest.mark.parametrize(
    ("size_bytes", "says"),
    [(0, "0 B"), (1_023, "1,023 B"), (1_536, "1.5 KiB"), (5 * 2**30, "5.0 GiB"), (3 * 2**50, "3,072.0 TiB")],
)
def test_a_size_has_its_largest_unit(size_bytes: int, says: str) -> None:
    assert size_text(size_bytes) == says
