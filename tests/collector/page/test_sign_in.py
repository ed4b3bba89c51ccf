"""Signing in with a key, and who may change something."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from browsing import take_picture, visit
from manual_clock import ManualClock
from page_sample import fill
from sent_forms import HTML, cookie_of, send, sign_in, token_in
from served import Collector, without_runner

from waybill.collector import Keys, Role
from waybill.collector.http import Problem
from waybill.collector.page.sign_in import ADDRESSES_MAX, TRIES_MAX, TRIES_WITHIN_S, Tries, own_path
from waybill.collector.sessions import SESSION_S, SESSIONS_MAX, Sessions
from waybill.transport import Journal, Rejects

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def guarded(keys: dict[str, str]) -> Iterator[Collector]:
    with without_runner(Path(keys["home"]), "--provenance-enabled") as collector:
        fill(collector, {"Authorization": f"Bearer {keys['admin']}"})
        yield collector


def test_a_page_asks_to_sign_in_and_goes_on_to_what_was_asked(
    guarded: Collector, keys: dict[str, str]
) -> None:
    asked = guarded.get("/find?data_source=web-shop", HTML)
    assert (asked.status, asked.headers["location"]) == (
        303,
        "/sign-in?next=%2Ffind%3Fdata_source%3Dweb-shop",
    )
    assert guarded.get("/find", {"Accept": "application/json"}).status == 401
    assert guarded.get("/find.json", HTML).status == 401
    signed_in = sign_in(guarded, keys["read"], "/find?data_source=web-shop")
    assert (signed_in.status, signed_in.headers["location"]) == (303, "/find?data_source=web-shop")
    flags = signed_in.headers["set-cookie"].lower()
    assert "httponly" in flags
    assert "samesite=lax" in flags
    assert f"max-age={SESSION_S}" in flags
    assert "secure" not in flags, "this is no TLS"
    page = guarded.get("/find?data_source=web-shop", HTML | {"Cookie": cookie_of(signed_in)})
    assert page.status == 200
    assert b"Signed in with the key <b>read</b>" in page.body


def test_people_sign_in_and_out_without_script(
    browser: Browser, guarded: Collector, keys: dict[str, str]
) -> None:
    opened = visit(browser, f"{guarded.url}/open", has_script=False)
    page = opened.page
    page.get_by_label("API key").fill(keys["read"])
    page.get_by_role("button", name="Sign in").click()
    assert page.url == f"{guarded.url}/open"
    page.get_by_role("button", name="Sign out").click()
    assert page.url == f"{guarded.url}/sign-in"
    page.goto(f"{guarded.url}/open")
    assert page.url.startswith(f"{guarded.url}/sign-in")
    opened.close()


def test_nothing_keeps_people_from_signing_in(browser: Browser, guarded: Collector) -> None:
    opened = visit(browser, f"{guarded.url}/sign-in")
    take_picture(opened.page, "sign-in")
    opened.check_use()
    opened.close()


STOPPED = """if True:
    import os, signal, sys, apsw
    writer = apsw.Connection(sys.argv[1] + "/journal.db")
    writer.execute("BEGIN IMMEDIATE")
    print("inside", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
"""


def test_the_first_pages_and_health_are_shown_while_a_program_is_stopped_inside_a_commit(
    tmp_path: Path,
) -> None:
    journal = Journal(tmp_path / "home")
    key = Keys(journal).add("reader", [Role.READ])
    journal.close()
    with without_runner(tmp_path / "home") as collector:
        child = subprocess.Popen(
            [sys.executable, "-c", STOPPED, collector.home], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        assert child.stdout.readline() == "inside\n"
        os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
        refused = threading.Thread(target=sign_in, args=(collector, key))
        try:
            began_s = time.monotonic()
            token = token_in(collector.get("/sign-in", HTML))
            assert collector.get("/find", HTML | {"Cookie": "waybill_session=none"}).status == 303
            refused.start()  # it has to write, so it waits
            while refused.is_alive() and time.monotonic() < began_s + 2:
                assert collector.get("/health/live").status == 200
            assert refused.is_alive()
            assert time.monotonic() < began_s + 15, "the journal is waited for at most 30 s"
            assert token == token_in(collector.get("/sign-in", HTML))
        finally:
            child.kill()
            child.communicate()
            refused.join()


def test_a_form_that_one_worker_drew_is_accepted_by_the_others(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "home")
    key = Keys(journal).add("reader", [Role.READ])
    journal.close()
    with without_runner(tmp_path / "home", "--workers", "3") as collector:
        assert [sign_in(collector, key).status for _ in range(12)] == [303] * 12


def test_a_session_is_only_for_the_page(guarded: Collector, keys: dict[str, str]) -> None:
    cookie = {"Cookie": cookie_of(sign_in(guarded, keys["admin"]))}
    assert guarded.get("/find.json", cookie).status == 200
    assert guarded.get("/api/v1/records", cookie).status == 401
    assert guarded.post("/api/v1/lineage", b"{}", {"Content-Type": "application/json"} | cookie).status == 401


def test_signing_out_ends_the_session(guarded: Collector, keys: dict[str, str]) -> None:
    cookie = cookie_of(sign_in(guarded, keys["read"]))
    token = token_in(guarded.get("/find", HTML | {"Cookie": cookie}))
    assert send(guarded, "/sign-out", cookie, csrf=token).status == 303
    assert guarded.get("/find.json", {"Cookie": cookie}).status == 401


def test_a_revoked_key_ends_its_sessions(guarded: Collector) -> None:
    journal = Journal(guarded.home)
    key = Keys(journal).add("short", [Role.READ])
    deadline_s = time.monotonic() + 20
    while (signed_in := sign_in(guarded, key)).status != 303 and time.monotonic() < deadline_s:
        time.sleep(0.5)
    cookie = {"Cookie": cookie_of(signed_in)}
    assert guarded.get("/find.json", cookie).status == 200
    Keys(journal).revoke("short")
    journal.close()
    while guarded.get("/find.json", cookie).status != 401:
        assert time.monotonic() < deadline_s
        time.sleep(0.2)


@pytest.mark.parametrize("path", ["/sign-in", "/sign-out", "/health/retry"])
@pytest.mark.parametrize(
    ("headers", "with_token"),
    [({}, False), ({"Origin": "http://evil.example"}, True), ({"Origin": "null"}, True)],
    ids=["no token", "another site", "no origin"],
)
def test_a_form_from_elsewhere_changes_nothing(
    guarded: Collector, keys: dict[str, str], path: str, headers: dict[str, str], *, with_token: bool
) -> None:
    cookie = cookie_of(sign_in(guarded, keys["admin"]))
    token = token_in(guarded.get("/find", HTML | {"Cookie": cookie})) if with_token else "0" * 64
    refused = send(guarded, path, cookie, headers, csrf=token, key=keys["admin"], box="rejects", id="x")
    assert refused.status == 403
    assert "set-cookie" not in refused.headers
    assert guarded.get("/find.json", {"Cookie": cookie}).status == 200


def test_the_token_of_one_session_is_not_that_of_another(guarded: Collector, keys: dict[str, str]) -> None:
    mine, other = (cookie_of(sign_in(guarded, keys["read"])) for _ in range(2))
    token = token_in(guarded.get("/find", HTML | {"Cookie": other}))
    assert send(guarded, "/sign-out", mine, csrf=token).status == 403


@pytest.mark.parametrize(
    "elsewhere",
    [
        "https://evil.example/",
        "//evil.example",
        "/\\evil.example",
        "javascript:alert(1)",
        "/a\r\nb",
        "",
        "/ /evil",
    ],
)
def test_only_own_paths_are_gone_on_to(guarded: Collector, keys: dict[str, str], elsewhere: str) -> None:
    assert own_path(elsewhere) == "/"
    assert sign_in(guarded, keys["read"], elsewhere).headers["location"] == "/"


def test_wrong_keys_from_one_address_are_limited() -> None:
    clock = ManualClock()
    tries = Tries(clock)
    for _ in range(TRIES_MAX):
        tries.check("192.0.2.1")
        tries.note("192.0.2.1")
    with pytest.raises(Problem) as refused:
        tries.check("192.0.2.1")
    assert refused.value.status == 429
    tries.check("192.0.2.2")
    clock.move(TRIES_WITHIN_S)
    tries.check("192.0.2.1")
    for number in range(ADDRESSES_MAX + 1):
        tries.note(str(number))
    assert len(tries._wrong) == ADDRESSES_MAX  # noqa: SLF001 - its memory is bounded


def test_a_wrong_key_is_refused_and_then_the_address_waits(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "home")
    key = Keys(journal).add("reader", [Role.READ])
    journal.close()
    with without_runner(tmp_path / "home") as collector:
        assert collector.get("/find", HTML).status == 303  # no attack, so it is not counted
        statuses = [sign_in(collector, "wbk_wrong").status for _ in range(TRIES_MAX + 1)]
        metrics = collector.get("/metrics", {"Authorization": f"Bearer {key}"}).body.decode()
    assert statuses == [403] * TRIES_MAX + [429]
    assert f'waybill_refused_access_total{{status="403"}} {TRIES_MAX}' in metrics.splitlines()
    assert 'status="401"} 1' not in metrics


def test_a_session_ends_after_eight_hours_and_only_so_many_are_kept(tmp_path: Path) -> None:
    clock = ManualClock()
    journal = Journal(tmp_path / "home", clock=clock)
    Keys(journal).add("reader", [Role.READ])
    (key,) = Keys(journal).all()
    sessions = Sessions(journal)
    first = sessions.begin(key)
    clock.move(SESSION_S - 0.001)
    assert sessions.key_of(first, [key]) == key
    assert sessions.key_of(first, []) is None
    clock.move(0.001)
    assert sessions.key_of(first, [key]) is None
    for _ in range(SESSIONS_MAX + 2):
        last = sessions.begin(key)
    rows = journal.state("sessions")
    journal.close()
    assert len(rows) == SESSIONS_MAX
    assert last not in str(rows), "only a hash is kept"


def test_who_administers_has_things_tried_again(
    browser: Browser, guarded: Collector, keys: dict[str, str]
) -> None:
    opened = visit(browser, f"{guarded.url}/health", has_script=False)
    page = opened.page
    page.get_by_label("API key").fill(keys["admin"])
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("button", name=re.compile("^Retry")).click()
    assert "it is refused again" in page.locator("main").inner_text()
    opened.complaints.clear()  # of the status, 422
    opened.close()
    journal = Journal(guarded.home)
    left = len(Rejects(journal).all())
    journal.close()
    assert left == 1


def test_who_only_reads_is_shown_no_button_and_refused(guarded: Collector, keys: dict[str, str]) -> None:
    cookie = cookie_of(sign_in(guarded, keys["read"]))
    page = guarded.get("/health", HTML | {"Cookie": cookie})
    assert b"Retry" not in page.body
    refused = send(guarded, "/health/retry", cookie, csrf=token_in(page), box="rejects", id="x")
    assert refused.status == 403


def test_where_no_key_is_needed_nobody_signs_in_but_forms_need_their_token(looked_at: Collector) -> None:
    assert looked_at.get("/sign-in?next=/open", HTML).headers["location"] == "/open"
    assert looked_at.get("/find", HTML).status == 200
    assert send(looked_at, "/health/retry", box="rejects", id="x", csrf="0").status == 403
    token = token_in(looked_at.get("/health", HTML))
    gone = send(looked_at, "/health/retry", box="rejects", id="x", csrf=token)
    assert gone.status == 404
