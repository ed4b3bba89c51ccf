"""Drop the orders without an amount. It knows nothing of Waybill."""

import csv
from pathlib import Path

folder = Path(__file__).parent.parent
with (
    (folder / "orders.csv").open(newline="") as source,
    (folder / "clean.csv").open("w", newline="") as target,
):
    rows = csv.DictReader(source)
    clean = csv.DictWriter(target, ["id", "amount"])
    clean.writeheader()
    clean.writerows({"id": row["id"], "amount": row["amount"]} for row in rows if row["amount"])
