"""The setting `backends`: valid values, what is stored, and where its keys stay."""

from __future__ import annotations

import contextlib
import json
import socket
from pathlib import Path

import pytest

from waybill.transport import Journal, Settings, SettingsError
from waybill.transport.config import agree, obey

DATAHUB = {"backend": "datahub", "endpoint": "http://hub:8080", "api_key": "hunter2"}

KAFKA = {
    "backend": "kafka",
    "endpoint": "kafka://one:9092,two:9092/lineage",
    "options": {"sasl.password": "hunter2", "linger.ms": 5},
}


def load(folder: Path, **given: object) -> Settings:
    return Settings.load({"home": folder / "home", **given}, env={}, cwd=folder)


def test_a_list_is_read_from_yaml_json_and_python_alike(tmp_path: Path) -> None:
    (tmp_path / "waybill.yaml").write_text(f"backends:\n  - {json.dumps(DATAHUB)}\n", encoding="utf-8")
    by_file = Settings.load(env={}, cwd=tmp_path)
    by_environment = Settings.load(env={"WAYBILL_BACKENDS": json.dumps([DATAHUB])}, cwd=tmp_path.parent)
    given = load(tmp_path.parent, backends=[DATAHUB])
    assert by_file.backends == by_environment.backends == given.backends
    (one,) = given.backends
    assert (one.name, one.backend, one.endpoint, one.api_key) == (
        "datahub",
        "datahub",
        "http://hub:8080",
        "hunter2",
    )


def test_a_file_is_named_by_its_whole_path_and_the_console_by_nothing(tmp_path: Path) -> None:
    file, console = load(
        tmp_path, backends=[{"backend": "file", "endpoint": "~/x.jsonl"}, {"backend": "console"}]
    ).backends
    assert Path(file.endpoint).is_absolute()
    assert "~" not in file.endpoint
    assert (console.name, console.endpoint) == ("console", "")


@pytest.mark.parametrize(
    ("backends", "words"),
    [
        ("[", "give a list in JSON; it ends too early"),
        (
            '[{"backend": "marquez", "endpoint": "http://a:1", "endpoint": "http://b:1"}]',
            "give 'endpoint' once in each backend",
        ),
        ("nope", "give a list in JSON; it is not valid JSON: invalid character, at byte "),
        ("{}", "give a list of backends"),
        (5, "; expected a list, got a whole number"),
        ([{"backend": "banana"}], "one of marquez, datahub, openmetadata, custom, console, file, kafka"),
        ([{"backend": "banana"}], "; 'banana' is not a possible value (item 1, backend)"),
        ([{"endpoint": "http://h"}], "; backend is missing (item 1)"),
        ([DATAHUB | {"colour": "red"}], "; there is no field colour (item 1)"),
        ([DATAHUB, DATAHUB | {"endpoint": None}], "; expected a text, got null (item 2, endpoint)"),
        ([DATAHUB | {"endpoint": "ftp://hub"}], "the endpoint of datahub is invalid: give an http"),
        ([DATAHUB | {"endpoint": "http://hub:99999"}], "the endpoint of datahub is invalid"),
        ([{"backend": "marquez"}], "the endpoint of marquez is invalid"),
        ([{"backend": "file"}], "give the path of the file"),
        ([{"backend": "console", "endpoint": "http://h"}], "the console has no endpoint"),
        ([DATAHUB | {"options": {"a": "hunter2"}}], "only kafka has options"),
        ([KAFKA | {"api_key": "hunter2"}], "kafka has no api_key"),
        ([KAFKA | {"endpoint": "kafka://broker/lineage"}], "the endpoint of kafka is invalid"),
        ([KAFKA | {"endpoint": "http://broker:9092/lineage"}], "the endpoint of kafka is invalid"),
        ([KAFKA | {"endpoint": "kafka://broker:9092/no topic"}], "give kafka://broker:9092/topic"),
        ([DATAHUB, DATAHUB], "two backends have the same name"),
        ([DATAHUB | {"name": "Data Hub"}], "is not a valid name of a backend"),
        ([DATAHUB | {"name": "layout"}], "is not a valid name of a backend"),
    ],
)
def test_an_invalid_list_is_refused_without_showing_a_key(
    tmp_path: Path, backends: object, words: str
) -> None:
    with pytest.raises(SettingsError) as raised:
        load(tmp_path, backends=backends)
    assert words in str(raised.value)
    assert "hunter2" not in str(raised.value)


def test_the_name_of_the_short_form_is_taken_while_it_is_used(tmp_path: Path) -> None:
    second = {"backend": "marquez", "endpoint": "http://second:5000"}
    with pytest.raises(SettingsError, match="give this one another"):
        load(tmp_path, marquez_url="http://first:5000", backends=[second])
    assert load(tmp_path, backends=[second]).backends[0].name == "marquez"
    both = load(tmp_path, marquez_url="http://first:5000", backends=[second | {"name": "second"}])
    assert both.backends[0].name == "second"


PUBLIC = {"public_url": "https://lineage.example/waybill"}


@pytest.mark.parametrize(
    ("url", "given", "is_itself"),
    [
        ("http://localhost:8090", {"listen": "127.0.0.1:8090"}, True),
        ("http://127.0.0.1:8090/api/v1/lineage", {"listen": "0.0.0.0:8090"}, True),
        ("http://[::1]:8090", {"listen": "localhost:8090"}, True),
        ("http://lineage.example:8090", {"listen": "lineage.example:8090"}, True),
        ("https://localhost", {"listen": "127.0.0.1:443"}, True),
        ("http://localhost:5000", {"listen": "127.0.0.1:8090"}, False),
        ("http://elsewhere:8090", {"listen": "127.0.0.1:8090"}, False),
        (f"http://{socket.gethostname()}:8090", {"listen": "0.0.0.0:8090"}, True),
        ("https://lineage.example/waybill/api/v1/lineage", PUBLIC, True),
        ("https://Lineage.example:443/waybill/", PUBLIC, True),
        ("https://lineage.example/marquez", PUBLIC, False),
    ],
)
def test_waybill_itself_is_refused_as_a_backend_by_each_name_that_it_is_reached_at(
    tmp_path: Path, url: str, given: dict[str, str], *, is_itself: bool
) -> None:
    is_refused = pytest.raises(SettingsError, match="is Waybill's own endpoint")
    for backend in ({"marquez_url": url}, {"backends": [{"backend": "custom", "endpoint": url}]}):
        with is_refused if is_itself else contextlib.nullcontext():
            load(tmp_path, **given, **backend)


def test_no_key_is_shown_or_kept_in_the_home(tmp_path: Path) -> None:
    settings = load(tmp_path, backends=[DATAHUB, KAFKA])
    shown = "datahub=http://hub:8080,kafka=kafka://one:9092,two:9092/lineage"
    assert settings.shown("backends") == shown
    assert "hunter2" not in json.dumps(settings.plain("backends"))
    journal = Journal(settings.home)
    agree(journal, settings)
    assert "hunter2" not in str(journal.meta("settings"))
    journal.close()


def test_a_runner_has_the_homes_backends_with_the_keys_of_its_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load(tmp_path, backends=[DATAHUB, KAFKA, {"backend": "console"}])
    journal = Journal(settings.home)
    agree(journal, settings)
    assert obey(journal).backends[0].api_key is None
    assert obey(journal).backends[1].options == {}
    for name, value in settings.environment.items():
        monkeypatch.setenv(name, value)
    assert obey(journal).backends == settings.backends
    monkeypatch.setenv("WAYBILL_BACKENDS", json.dumps([DATAHUB | {"endpoint": "http://other:1"}]))
    assert obey(journal).backends[0].api_key is None, "a key goes nowhere but where it is for"
    journal.close()
    assert load(tmp_path, backends=[{"backend": "console"}]).environment == {}


SECRET_URL = "http://user:hunter2@marquez:5000"  # noqa: S105 - the test's own
CUSTOM = {"backend": "custom", "endpoint": "https://user:hunter2@hub/lineage"}


def test_the_passwords_of_urls_are_not_in_the_journal_and_the_runner_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load(tmp_path, marquez_url=SECRET_URL, marquez_api_key="hunter2", backends=[CUSTOM])
    journal = Journal(settings.home)
    assert agree(journal, settings).marquez_url == SECRET_URL
    followed = agree(journal, load(tmp_path))
    assert (followed.marquez_url, followed.marquez_api_key) == ("http://marquez:5000", None)
    assert obey(journal).marquez_url == "http://marquez:5000"
    for name, value in settings.environment.items():
        monkeypatch.setenv(name, value)
    assert (obey(journal).marquez_url, obey(journal).backends) == (SECRET_URL, settings.backends)
    monkeypatch.setenv("WAYBILL_MARQUEZ_URL", "http://user:hunter2@other:5000")
    assert obey(journal).marquez_url == "http://marquez:5000", "a password goes nowhere but where it is for"
    journal.close()
    assert not [path for path in settings.home.iterdir() if b"hunter2" in path.read_bytes()]
