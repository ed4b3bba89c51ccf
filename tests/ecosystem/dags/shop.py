"""A DAG that maps 40 tasks, has one that succeeds at its second try, and ends with one that fails."""

from __future__ import annotations

import datetime

from airflow.sdk import dag, get_current_context, task


@dag(schedule=None, start_date=datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC), catchup=False)
def shop() -> None:
    @task
    def orders() -> list[int]:
        return list(range(40))

    @task
    def load(number: int) -> int:
        return number

    @task(retries=1, retry_delay=datetime.timedelta(0))
    def flaky() -> None:
        if get_current_context()["ti"].try_number == 1:
            raise ValueError("the first try")

    @task
    def broken() -> None:
        raise ValueError("no such table: orders")

    load.expand(number=orders()) >> flaky() >> broken()


shop()
