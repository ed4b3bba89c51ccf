"""Add up the day's orders in a table. It knows nothing of Waybill."""

import csv
import sqlite3
from pathlib import Path

folder = Path(__file__).parent.parent
with (folder / "clean.csv").open(newline="") as source:
    amounts = [int(row["amount"]) for row in csv.DictReader(source)]
with sqlite3.connect(folder / "shop.db") as database:
    database.execute("CREATE TABLE IF NOT EXISTS totals (orders INTEGER, amount INTEGER)")
    database.execute("INSERT INTO totals VALUES (?, ?)", (len(amounts), sum(amounts)))
