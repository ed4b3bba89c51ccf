"""What a home has whose page is looked at: records, files that are open, a job, and a reject."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from events import event
from served import record

from waybill.transport import Settings, flush

if TYPE_CHECKING:
    from served import Asking

HOUR_MS: Final = 3_600_000
BEGAN_MS: Final = 1_769_860_800_000
"""2026-01-31T12:00:00Z."""

ODD_NAMES: Final = (
    '<img src=x onerror="alert(1)">.csv',
    "</script><script>alert(2)</script>",
    "\u202egnp.\u05d7\u05e9\u05d1\u05d5\u05e0\u05d9\u05ea.csv",
    "long-" + "x" * 4_091,
    '=HYPERLINK("http://evil")&\'%00"',
)


def records() -> list[dict[str, object]]:
    """Files of two days, and some with odd names."""
    states = ("COMPLETE", "COMPLETE", "COMPLETE", "ERROR", "FILTERED")
    made = [
        record(
            did=f"01a1fd6a-9e75-7d78-870f-{number:012}",
            filename=f"orders-{number:03}.csv",
            dataSource=("sftp-orders", "web-shop", "partner-feed")[number % 3],
            transforms=["decompress", "validate", "enrich"][: number % 3 + 1],
            dataSink=None if states[number % 5] != "COMPLETE" else ("lake", "warehouse")[number % 2],
            finalState=states[number % 5],
            created=BEGAN_MS + number * HOUR_MS // 2 - 90_000,
            completed=BEGAN_MS + number * HOUR_MS // 2,
            annotations={"customer": ("acme", "globex")[number % 2]},
        )
        for number in range(90)
    ]
    return made + [
        record(did=f"01a1fd6a-9e75-7d78-0000-{at:012}", filename=name, completed=BEGAN_MS - HOUR_MS)
        for at, name in enumerate(ODD_NAMES)
    ]


def fill(collector: Asking, headers: dict[str, str] | None = None) -> None:
    """Give a collector's home records, files that are open, and a reject."""
    sent = {"Content-Type": "application/json"} | (headers or {})
    taken = collector.post("/provenance", json.dumps(records()).encode(), sent)
    assert taken.status == 202, taken.body
    for at in range(3):
        begun = event(f"01a1fd6a-9e75-7d78-1111-{at:012}", "START", job=f"nightly/load-{at}")
        assert collector.post("/api/v1/lineage", begun, sent).status == 201
    joined = event(
        "01a1fd6a-9e75-7d78-2222-000000000000",
        job="shop/build_orders",
        inputs=["s3://lake/raw/orders"],
        outputs=["s3://lake/clean/orders"],
    )
    assert collector.post("/api/v1/lineage", joined, sent).status == 201
    wrong = json.dumps({"eventType": "START", "run": {}}).encode()
    assert collector.post("/api/v1/lineage", wrong, sent).status == 422
    flush(Settings.load({"home": collector.home, "provenance_enabled": True}, env={}))
