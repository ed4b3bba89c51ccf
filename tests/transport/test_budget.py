from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from waybill.transport.budget import Budget, BudgetError, check_budget


def work_for_ever() -> None:
    while True:
        check_budget()


def test_a_question_that_uses_up_its_time_of_the_processor_ends() -> None:
    with pytest.raises(BudgetError, match=r"^the answer takes more than 0\.05 s of the processor; ask for"):
        Budget(0.05).spend(work_for_ever)
    check_budget()  # without a question there is no budget


def test_waiting_costs_nothing() -> None:
    def wait() -> str:
        threading.Event().wait(0.3)
        check_budget()
        return "waited"

    assert Budget(0.2).spend(wait) == "waited"


def test_a_question_that_nobody_waits_for_ends_or_does_not_begin() -> None:
    begun = threading.Event()

    def work() -> None:
        begun.set()
        work_for_ever()

    budget, never = Budget(600), Budget(600)
    with ThreadPoolExecutor(1) as executor:
        first, second = (executor.submit(one.spend, work) for one in (budget, never))
        begun.wait()
        never.end()
        begun.clear()
        budget.end()
        for one in (first, second):
            with pytest.raises(BudgetError, match="nobody waits"):
                one.result(60)
    assert not begun.is_set()
