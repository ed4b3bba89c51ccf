"""A DAG of two tasks, which succeed."""

from __future__ import annotations

import datetime

from airflow.sdk import dag, task


@dag(schedule=None, start_date=datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC), catchup=False)
def nightly() -> None:
    @task
    def orders() -> list[int]:
        return [7, 8]

    @task
    def total(numbers: list[int]) -> int:
        return sum(numbers)

    total(orders())


nightly()
