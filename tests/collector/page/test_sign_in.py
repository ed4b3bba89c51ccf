"""Signing in with a key, and who may change something."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import apsw
import pytest
from browsing import take_picture, visit
from inside import Exchange, Inside, Scope
from manual_clock import ManualClock
from read_pages import HTML
from sent_forms import FORM, cookie_of, send, sign_in, token_in
from served import without_runner

from waybill.collector import Keys, Role, sessions
from waybill.collector.http import HTML as HTML_TYPE, Problem
from waybill.collector.http.bodies import FORM_BYTES_MAX
from waybill.collector.page.sign_in import ADDRESSES_MAX, TRIES_MAX, TRIES_WITHIN_S, Tries, own_path
from waybill.collector.sessions import SESSION_S, Sessions
from waybill.transport import Journal

if TYPE_CHECKING:
    from conftest import Open
    from playwright.sync_api import Browser


class Silent(Exchange):
    """A body of which nothing arrives."""

    def __init__(self) -> None:
        super().__init__()
        self.is_asked = threading.Event()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        self.is_asked.set()
        await asyncio.Event().wait()
        yield b""


def test_a_page_asks_to_sign_in_and_goes_on_to_what_was_asked(guarded: Inside, keys: dict[str, str]) -> None:
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


def test_people_sign_in_and_out_without_script_and_nothing_keeps_them_from_it(
    browser: Browser, keys: dict[str, str]
) -> None:
    with without_runner(Path(keys["home"])) as collector:
        opened = visit(browser, f"{collector.url}/open", has_script=False)
        page = opened.page
        page.get_by_label("API key").fill(keys["read"])
        page.get_by_role("button", name="Sign in").click()
        assert page.url == f"{collector.url}/open"
        page.get_by_role("button", name="Sign out").click()
        assert page.url == f"{collector.url}/sign-in"
        page.goto(f"{collector.url}/open")
        assert page.url.startswith(f"{collector.url}/sign-in")
        opened.close()
        opened = visit(browser, f"{collector.url}/sign-in")
        take_picture(opened.page, "sign-in")
        opened.check_use()
        opened.close()


def test_the_first_pages_and_health_are_shown_while_somebody_is_inside_a_commit(
    inside: Open, journal: Journal
) -> None:
    key = Keys(journal).add("reader", [Role.READ])
    collector = inside()
    token = token_in(collector.get("/sign-in", HTML))
    with contextlib.closing(apsw.Connection(str(journal.path))) as writer, ThreadPoolExecutor(1) as pool:
        writer.execute("BEGIN IMMEDIATE")
        signing_in = pool.submit(sign_in, collector, key)  # it has to write, so it waits
        assert token == token_in(collector.get("/sign-in", HTML))
        assert collector.get("/find", HTML | {"Cookie": "waybill_session=none"}).status == 303
        assert collector.get("/health/live").status == 200
        assert not signing_in.done()
        writer.execute("ROLLBACK")
        assert signing_in.result().status == 303


def test_a_form_that_one_process_drew_is_accepted_by_the_others(inside: Open, journal: Journal) -> None:
    key = Keys(journal).add("reader", [Role.READ])
    one, other = inside(), inside()
    token = token_in(one.get("/sign-in", HTML))
    assert send(other, "/sign-in", csrf=token, key=key).status == 303


def test_a_session_is_only_for_the_page(guarded: Inside, keys: dict[str, str]) -> None:
    cookie = {"Cookie": cookie_of(sign_in(guarded, keys["admin"]))}
    assert guarded.get("/find.json", cookie).status == 200
    assert guarded.get("/api/v1/records", cookie).status == 401
    assert guarded.post("/api/v1/lineage", b"{}", {"Content-Type": "application/json"} | cookie).status == 401


def test_whose_key_has_not_the_role_may_sign_out_there(guarded: Inside, keys: dict[str, str]) -> None:
    cookie = {"Cookie": cookie_of(sign_in(guarded, keys["emit"]))}
    refused = guarded.get("/find", HTML | cookie)
    assert (refused.status, b"Sign out" in refused.body) == (403, True)
    wrong = guarded.get("/find?limit=x", HTML | {"Cookie": cookie_of(sign_in(guarded, keys["read"]))})
    assert (wrong.status, b"Sign out" in wrong.body) == (400, True)


def test_signing_out_ends_the_session_and_takes_its_own_token(guarded: Inside, keys: dict[str, str]) -> None:
    mine, other = (cookie_of(sign_in(guarded, keys["read"])) for _ in range(2))
    of_other, of_mine = (
        token_in(guarded.get("/find", HTML | {"Cookie": cookie})) for cookie in (other, mine)
    )
    assert send(guarded, "/sign-out", mine, csrf=of_other).status == 403
    assert send(guarded, "/sign-out", mine, csrf=of_mine).status == 303
    assert [guarded.get("/find.json", {"Cookie": cookie}).status for cookie in (mine, other)] == [401, 200]


def test_a_revoked_key_ends_its_sessions(guarded: Inside) -> None:
    key = Keys(guarded.journal).add("short", [Role.READ])
    guarded.look_at_keys()
    cookie = {"Cookie": cookie_of(sign_in(guarded, key))}
    assert guarded.get("/find.json", cookie).status == 200
    Keys(guarded.journal).revoke("short")
    guarded.look_at_keys()
    assert guarded.get("/find.json", cookie).status == 401


@pytest.mark.parametrize("path", ["/sign-in", "/sign-out", "/health/retry"])
@pytest.mark.parametrize(
    ("headers", "with_token"),
    [({}, False), ({"Origin": "http://evil.example"}, True), ({"Origin": "null"}, True)],
    ids=["no token", "another site", "no origin"],
)
def test_a_form_from_elsewhere_changes_nothing(
    guarded: Inside, keys: dict[str, str], path: str, headers: dict[str, str], *, with_token: bool
) -> None:
    cookie = cookie_of(sign_in(guarded, keys["admin"]))
    token = token_in(guarded.get("/find", HTML | {"Cookie": cookie})) if with_token else "0" * 64
    refused = send(guarded, path, cookie, headers, csrf=token, key=keys["admin"], box="rejects", id="x")
    assert refused.status == 403
    assert "set-cookie" not in refused.headers
    assert guarded.get("/find.json", {"Cookie": cookie}).status == 200


def test_a_form_has_so_many_bytes_and_so_long_to_arrive(inside: Open) -> None:
    collector = inside(body_timeout_s=0.05)
    for size_bytes, status in ((FORM_BYTES_MAX, 403), (FORM_BYTES_MAX + 1, 413)):
        reply = collector.ask("POST", "/sign-in", b"x" * size_bytes, FORM | HTML)
        assert (reply.status, reply.headers["content-type"]) == (status, HTML_TYPE)
    late = collector.begin(Scope("POST", "/sign-in", FORM | HTML), Silent()).result(60)
    assert (late.status, b"did not arrive within 0.05 s" in late.body) == (408, True)


def test_a_form_that_arrives_while_the_collector_ends_is_refused_and_that_is_logged(
    inside: Open, caplog: pytest.LogCaptureFixture
) -> None:
    collector, sender = inside(), Silent()
    reply = collector.begin(Scope("POST", "/sign-in", FORM | HTML), sender)
    assert sender.is_asked.wait(60)
    collector.end_arriving()
    refused = reply.result(60)
    assert (refused.status, refused.headers["retry-after"]) == (503, "2")
    assert b"the collector is being stopped" in refused.body
    assert [line.getMessage() for line in caplog.records if line.name == "waybill.collector"] == [
        "could not serve a request"
    ]


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
def test_only_own_paths_are_gone_on_to(guarded: Inside, keys: dict[str, str], elsewhere: str) -> None:
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


def test_a_wrong_key_is_refused_and_then_the_address_waits(inside: Open, journal: Journal) -> None:
    key = Keys(journal).add("reader", [Role.READ])
    collector = inside()
    assert collector.get("/find", HTML).status == 303  # no attack, so it is not counted
    statuses = [sign_in(collector, "wbk_wrong").status for _ in range(TRIES_MAX + 1)]
    assert statuses == [403] * TRIES_MAX + [429]
    metrics = collector.get("/metrics", {"Authorization": f"Bearer {key}"}).body.decode()
    assert f'waybill_refused_access_total{{status="403"}} {TRIES_MAX}' in metrics.splitlines()
    assert 'status="401"} 1' not in metrics


def test_a_session_ends_after_eight_hours_and_only_so_many_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "SESSIONS_MAX", 20)
    clock = ManualClock()
    journal = Journal(tmp_path / "home", clock=clock)
    Keys(journal).add("reader", [Role.READ])
    (key,) = Keys(journal).all()
    kept = Sessions(journal)
    first = kept.begin(key)
    clock.move(SESSION_S - 0.001)
    assert kept.key_of(first, [key]) == key
    assert kept.key_of(first, []) is None
    clock.move(0.001)
    assert kept.key_of(first, [key]) is None
    for _ in range(22):
        last = kept.begin(key)
    rows = journal.state("sessions")
    journal.close()
    assert len(rows) == 20
    assert last not in str(rows), "only a hash is kept"


def test_where_no_key_is_needed_nobody_signs_in(inside: Open) -> None:
    collector = inside()
    assert collector.get("/sign-in?next=/open", HTML).headers["location"] == "/open"
    assert collector.get("/find", HTML).status == 200
