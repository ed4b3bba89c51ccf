"""A collector behind a proxy: its links, its forms, and who is who."""

from __future__ import annotations

import contextlib
import re
from ipaddress import ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

import pytest
from inside import Inside
from page_sample import fill
from read_pages import HTML
from sent_forms import cookie_of, send, token_in

from waybill.collector import Keys, Role
from waybill.collector.page.sign_in import TRIES_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Open

    from waybill.transport import Journal

PUBLIC = "https://lineage.example/waybill"
"""What a proxy serves; it takes the path away, and names itself as Host, as the documentation has it."""

BROWSER = {"Origin": "https://lineage.example", "X-Forwarded-For": "192.0.2.1"}


@pytest.fixture(scope="module")
def proxied(keys: dict[str, str]) -> Iterator[Inside]:
    given: dict[str, Any] = {"provenance_enabled": True, "public_url": f"{PUBLIC}/"}
    proxies = [ip_network("127.0.0.0/8")]
    with contextlib.closing(Inside(Path(keys["home"]), proxies=proxies, **given)) as collector:
        fill(collector, {"Authorization": f"Bearer {keys['admin']}"})
        yield collector


def signed_in(proxied: Inside, key: str, **headers: str) -> dict[str, str]:
    token = token_in(proxied.get("/sign-in", HTML))
    reply = send(proxied, "/sign-in", "", BROWSER | headers, csrf=token, key=key, next="/find")
    assert (reply.status, reply.headers["location"]) == (303, "/waybill/find")
    return {"Cookie": cookie_of(reply)}


def test_forms_of_the_public_address_are_taken_and_cookies_go_by_tls_alone(
    proxied: Inside, keys: dict[str, str]
) -> None:
    token = token_in(proxied.get("/sign-in", HTML))
    reply = send(proxied, "/sign-in", "", BROWSER, csrf=token, key=keys["read"])
    assert reply.status == 303
    flags = {one.strip().lower() for one in reply.headers["set-cookie"].split(";")}
    assert {"secure", "httponly", "path=/waybill"} <= flags
    cookie = cookie_of(reply)
    token = token_in(proxied.get("/find", HTML | {"Cookie": cookie}))
    for origin in ("https://lineage.example.evil", "http://lineage.example", "https://[", "null"):
        assert send(proxied, "/sign-out", cookie, {"Origin": origin}, csrf=token).status == 403
    assert send(proxied, "/sign-out", cookie, BROWSER, csrf=token).headers["location"] == "/waybill/sign-in"


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/find",
        "/health",
        "/slis",
        "/file?did=01a1fd6a-9e75-7d78-870f-000000000007",
        "/search?q=x",
        "/docs",
    ],
)
def test_all_links_stay_within_the_public_path(proxied: Inside, keys: dict[str, str], path: str) -> None:
    cookie = signed_in(proxied, keys["admin"])
    page = proxied.get(path, HTML | cookie)
    assert page.status == 200
    addresses = re.findall(r'\b(?:href|action|src|hx-get)="([^"]*)"', page.body.decode())
    assert len(addresses) > 1 or path == "/docs"
    for address in addresses:
        assert urljoin(PUBLIC + path, address).startswith((f"{PUBLIC}/", f"{PUBLIC}{path}#")), address
    stylesheet = next((one for one in addresses if one.endswith(".css")), "/waybill/openapi.json")
    # A proxy may take the path away or leave it.
    assert {proxied.get(one).status for one in (stylesheet, stylesheet.removeprefix("/waybill"))} == {200}


def test_who_is_not_signed_in_is_led_to_the_public_address_with_what_was_asked(proxied: Inside) -> None:
    asked = proxied.get("/waybill/find?data_source=web-shop", HTML)
    assert asked.headers["location"] == "/waybill/sign-in?next=%2Ffind%3Fdata_source%3Dweb-shop"
    assert proxied.get("/waybillx", HTML).status == 404


def test_wrong_keys_lock_out_their_sender_alone(proxied: Inside, keys: dict[str, str]) -> None:
    token = token_in(proxied.get("/sign-in", HTML))

    def wrong(forwarded_for: str) -> int:
        sent = BROWSER | {"X-Forwarded-For": forwarded_for}
        return send(proxied, "/sign-in", "", sent, csrf=token, key="wbk_wrong").status

    # What the sender itself adds is before what the proxy adds.
    statuses = [wrong(f"192.0.2.{number}, 203.0.113.9, 127.0.0.2") for number in range(TRIES_MAX + 1)]
    assert statuses == [403] * TRIES_MAX + [429]
    assert wrong("203.0.113.10") == 403
    signed_in(proxied, keys["read"])
    signed_in(proxied, keys["read"], **{"X-Forwarded-For": "no address"})


def test_the_name_of_the_public_address_is_answered_and_no_other(proxied: Inside) -> None:
    statuses = {
        host: proxied.get("/sign-in", HTML | {"Host": host}).status
        for host in ("lineage.example", "127.0.0.1:8090", "evil.example")
    }
    assert statuses == {"lineage.example": 200, "127.0.0.1:8090": 200, "evil.example": 403}


def test_nobody_is_believed_who_is_no_proxy(inside: Open, journal: Journal) -> None:
    Keys(journal).add("reader", [Role.READ])
    collector = inside(proxies=[ip_network("192.0.2.7")])
    token = token_in(collector.get("/sign-in", HTML))

    def wrong(number: int) -> int:
        sent = {"X-Forwarded-For": f"192.0.2.{number}"}
        return send(collector, "/sign-in", "", sent, csrf=token, key="wbk_wrong").status

    assert [wrong(number) for number in range(TRIES_MAX + 1)] == [403] * TRIES_MAX + [429]
