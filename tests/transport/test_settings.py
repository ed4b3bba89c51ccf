"""Settings: their origins, and invalid values."""

from __future__ import annotations

import contextlib
import os
import pickle
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from waybill.transport import Journal, Settings, SettingsError
from waybill.transport.config import SETTINGS, agree, agreed, conflicts
from waybill.transport.errors import SettingsFileError

ANY_GROUP = 54_321
GIVES_AWAY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")


def load(tmp_path: Path, overrides: dict[str, object] | None = None, **env: str) -> Settings:
    return Settings.load(overrides, env={"XDG_CONFIG_HOME": str(tmp_path / "config"), **env}, cwd=tmp_path)


def test_the_defaults_are_those_of_the_documentation(tmp_path: Path) -> None:
    settings = load(tmp_path)
    assert settings.root == settings.home
    assert settings.provenance_enabled is False
    assert settings.archive_enabled is True
    assert settings.provenance_age_off_days == 3
    assert settings.provenance_annotations_allowed == frozenset()
    assert settings.marquez_url is None
    assert (settings.journal_retain_days, settings.journal_max_bytes) == (7, 10 * 2**30)
    assert (settings.home_mode, settings.runner, settings.durability) == ("private", "child", "power")
    assert settings.listen == "127.0.0.1:8090"
    assert set(settings.origins.values()) == {"default"}


def test_the_nearest_source_wins(tmp_path: Path) -> None:
    (tmp_path / "config" / "waybill").mkdir(parents=True)
    (tmp_path / "config" / "waybill" / "config.yaml").write_text(
        "root: /user\nlisten: 0.0.0.0:1\nsystem_name: user\nhome: /user"
    )
    (tmp_path / "waybill.yaml").write_text("root: /folder\nlisten: 0.0.0.0:2\nsystem_name: folder")
    settings = load(
        tmp_path, {"root": "/caller", "listen": None}, WAYBILL_ROOT="/env", WAYBILL_LISTEN="0.0.0.0:3"
    )
    assert (str(settings.root), settings.origins["root"]) == ("/caller", "constructor")
    assert (settings.listen, settings.origins["listen"]) == ("0.0.0.0:3", "environment WAYBILL_LISTEN")
    assert (settings.system_name, settings.origins["system_name"]) == (
        "folder",
        str(tmp_path / "waybill.yaml"),
    )
    assert settings.origins["home"] == str(tmp_path / "config" / "waybill" / "config.yaml")


def test_the_names_that_openlineage_users_know_serve_as_well(tmp_path: Path) -> None:
    settings = load(tmp_path, MARQUEZ_URL="http://m:5000", OPENLINEAGE_API_KEY="secret")
    assert (settings.marquez_url, settings.marquez_api_key) == ("http://m:5000", "secret")
    assert settings.origins["marquez_url"] == "environment MARQUEZ_URL"
    nearer = load(tmp_path, MARQUEZ_URL="http://m:5000", WAYBILL_MARQUEZ_URL="http://w:5000")
    assert nearer.marquez_url == "http://w:5000"


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("provenance_enabled", "yes", True),
        ("provenance_enabled", "0", False),
        ("archive_enabled", "off", False),
        ("journal_max_bytes", "500 MiB", 500 * 2**20),
        ("journal_max_bytes", "1.5gb", 1_500_000_000),
        ("journal_max_bytes", 2**20, 2**20),
        ("provenance_annotations_allowed", " a, b,,c ", frozenset("abc")),
        ("provenance_annotations_allowed", ["a", "b"], frozenset("ab")),
        ("journal_retain_days", "0.5", 0.5),
        ("system_name", "é" * 1_000, "é" * 1_000),
    ],
)
def test_values_are_read_as_people_write_them(
    tmp_path: Path, name: str, value: object, expected: object
) -> None:
    assert getattr(load(tmp_path, {name: value}), name) == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("home", ""),
        ("home", 7),
        ("home", "a\0b"),
        ("home", "a\udcffb"),
        ("home", "~nobody-of-this-name/waybill"),
        ("root", "s3://bucket/lineage"),
        ("system_name", ""),
        ("system_name", "a\0b"),
        ("system_name", "a\udcffb"),
        ("system_name", "é" * 1_001),
        ("provenance_enabled", "perhaps"),
        ("provenance_age_off_days", 0),
        ("provenance_age_off_days", "nan"),
        ("journal_retain_days", "inf"),
        ("journal_retain_days", 1e15),
        ("journal_retain_days", True),
        ("provenance_annotations_allowed", 5),
        ("marquez_url", "marquez:5000"),
        ("marquez_url", "http://m:99999"),
        ("marquez_url", "ftp://m"),
        ("marquez_url", "http://[::1"),
        ("journal_max_bytes", "1 KiB"),
        ("journal_max_bytes", "many"),
        ("home_mode", "world"),
        ("runner", "thread"),
        ("durability", "none"),
        ("listen", "8090"),
        ("listen", "host:port"),
        ("listen", "host:70000"),
        ("listen", "host:²"),
        ("no_such_setting", 1),
    ],
)
def test_an_invalid_value_is_refused_with_its_name_value_and_origin(
    tmp_path: Path, name: str, value: object
) -> None:
    with pytest.raises(SettingsError) as raised:
        load(tmp_path, {name: value})
    assert (raised.value.name, raised.value.value, raised.value.origin) == (name, value, "constructor")
    assert name in str(raised.value)
    assert re.search(r"\bgive |lists them all", raised.value.what), "it says what to do"
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


def test_a_user_without_a_home_needs_to_give_one_and_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 7)  # one without an entry in the password file
    assert Settings.load({"home": tmp_path}, env={}, cwd=tmp_path).home == tmp_path
    with pytest.raises(SettingsError, match="setting home"):
        Settings.load(env={}, cwd=tmp_path)


def test_a_mistake_in_the_environment_is_named_with_its_variable(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="from environment WAYBILL_DURABILITY"):
        load(tmp_path, WAYBILL_DURABILITY="fast")


def test_settings_may_be_sent_to_another_process(tmp_path: Path) -> None:
    settings = load(tmp_path, {"root": "/caller"}, WAYBILL_LISTEN="0.0.0.0:3")
    assert pickle.loads(pickle.dumps(settings)) == settings
    changed = settings.with_values({"root": "/other"}, "tests")
    assert pickle.loads(pickle.dumps(changed)).origins["root"] == "tests"


def test_a_secret_is_never_shown(tmp_path: Path) -> None:
    settings = load(tmp_path, {"marquez_api_key": "hunter2"})
    assert "hunter2" not in " ".join(settings.shown(name) for name in SETTINGS)
    with pytest.raises(SettingsError) as raised:
        load(tmp_path, {"marquez_api_key": "hunter2\0"})
    assert "hunter2" not in str(raised.value)


def test_the_password_of_a_url_is_never_shown(tmp_path: Path) -> None:
    url = "http://ann:hunter2@m:5000/marquez"
    backends = [{"backend": "datahub", "endpoint": "https://ann:hunter2@hub"}]
    settings = load(tmp_path, {"home": str(tmp_path), "marquez_url": url, "backends": backends})
    assert settings.marquez_url == url
    assert settings.shown("marquez_url") == "http://****@m:5000/marquez"
    assert settings.shown("backends") == "datahub=https://****@hub"
    refused = []
    for wrong in ("http://ann:hunter2@localhost:8090", "http://ann:hunter2@m:99999"):
        with pytest.raises(SettingsError) as raised:
            load(tmp_path, {"marquez_url": wrong})
        refused.append(raised.value)
    journal = Journal(tmp_path)
    agree(journal, settings)
    changed: dict[str, object] = {"marquez_url": "http://bob:hunter2@m:5000"}
    changed["backends"] = [*backends, {"backend": "console"}]
    differing = conflicts(journal, load(tmp_path, changed))
    journal.close()
    assert {error.name for error in differing} == {"marquez_url", "backends"}
    assert "hunter2" not in " ".join(map(str, [*refused, *differing]))


HOSTILE = {
    "nested": ("[" * 5_000, "line 1, column 21"),
    "long number": (f"admit_items: {'9' * 5_000}", "there is no such number"),
    "circle": ("backends: &x [*x]", "no aliases"),
    "bomb": ("a: &a [1]\nb: &b [*a, *a]\nbackends: [*b, *b]", "line 2"),
    "twice": ("root: /a\nroot: /b", "line 2, column 1"),
    "a date that is none": ("root: 2026-13-01", "there is no such number or date"),
    "large": ("# " + "x" * 2**20, "larger than 1 MB"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_that_is_no_settings_is_refused_by_a_command_and_left_out_by_a_pipeline(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    content, says = HOSTILE[name]
    file = tmp_path / "waybill.yaml"
    file.write_text(content)
    with pytest.raises(SettingsFileError, match=re.escape(str(file))) as caught:
        Settings.load({}, env={}, cwd=tmp_path)
    assert says in str(caught.value)
    assert Settings.load({"home": tmp_path}, env={}, cwd=tmp_path, goes_on=True).home == tmp_path
    assert [record.getMessage() for record in caplog.records] == [
        f"{caught.value}; the program goes on without it"
    ]
    with pytest.raises(SettingsFileError):
        Settings.load({"strict": True}, env={}, cwd=tmp_path, goes_on=True)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_no_regular_file_is_not_read(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "waybill.yaml")
    with pytest.raises(SettingsFileError, match=r"waybill\.yaml.*(not a regular file|cannot be read)"):
        Settings.load({}, env={}, cwd=tmp_path)


@GIVES_AWAY
@pytest.mark.parametrize(
    ("folder_mode", "mode", "says"),
    [
        (0o755, 0o644, ""),
        (0o1777, 0o644, "others may write to its folder {folder}; run `chmod go-w {folder}`"),
        (0o755, 0o666, "others may write to it; run `chmod go-w {file}`"),
        (0o755, 0o646, "others may write to it; run `chmod o-w {file}`"),
        (0o775, 0o644, "others may write to its folder {folder}; run `chmod go-w {folder}`"),
    ],
)
def test_a_file_counts_only_if_nobody_else_may_write_it(
    tmp_path: Path, folder_mode: int, mode: int, says: str
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    file = folder / "waybill.yaml"
    file.write_text("system_name: mine")
    os.chown(folder, -1, ANY_GROUP)
    os.chown(file, -1, ANY_GROUP)
    file.chmod(mode)
    folder.chmod(folder_mode)
    if not says:
        assert Settings.load({}, env={}, cwd=folder).system_name == "mine"
        return
    with pytest.raises(SettingsFileError, match=re.escape(says.format(folder=folder, file=file))):
        Settings.load({}, env={}, cwd=folder)


@GIVES_AWAY
def test_a_group_may_write_a_file_where_the_home_is_the_groups(tmp_path: Path) -> None:
    file = tmp_path / "waybill.yaml"
    file.write_text("system_name: ours")
    os.chown(file, -1, ANY_GROUP)
    file.chmod(0o664)
    with pytest.raises(SettingsFileError):
        Settings.load({}, env={}, cwd=tmp_path)
    file.write_text("system_name: ours\nhome_mode: group")  # a file does not vouch for itself
    with pytest.raises(SettingsFileError):
        Settings.load({}, env={}, cwd=tmp_path)
    config = tmp_path / "config" / "waybill"
    config.mkdir(parents=True)
    (config / "config.yaml").write_text("home_mode: group")
    for given, env in (
        ({"home_mode": "group"}, {}),
        ({}, {"WAYBILL_HOME_MODE": "group"}),
        ({}, {"XDG_CONFIG_HOME": str(tmp_path / "config")}),
    ):
        assert Settings.load(given, env=env, cwd=tmp_path).system_name == "ours"


@GIVES_AWAY
def test_a_file_of_another_user_does_not_count_and_a_link_is_judged_by_its_target(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "theirs.yaml").write_text("marquez_url: http://evil.invalid")
    os.chown(other / "theirs.yaml", 12_345, -1)
    (tmp_path / "waybill.yaml").symlink_to(other / "theirs.yaml")
    with pytest.raises(SettingsFileError, match="it belongs to another user"):
        Settings.load({}, env={}, cwd=tmp_path)
    os.chown(other / "theirs.yaml", 0, -1)
    os.chown(other, 12_345, -1)
    with pytest.raises(SettingsFileError, match=f"its folder {other} belongs to another user"):
        Settings.load({}, env={}, cwd=tmp_path)
    os.chown(other, 0, -1)
    assert Settings.load({}, env={}, cwd=tmp_path).marquez_url == "http://evil.invalid"


@pytest.mark.parametrize(
    ("config", "env", "project", "key"),
    [
        ("marquez_url: http://a\nmarquez_api_key: k", {}, "marquez_url: http://b", None),
        ("marquez_url: http://a\nmarquez_api_key: k", {}, "marquez_url: http://user:pw@a", "k"),
        ("marquez_api_key: k", {}, "marquez_url: http://b", "k"),
        ("", {"MARQUEZ_URL": "http://a", "OPENLINEAGE_API_KEY": "k"}, "marquez_url: http://b", "k"),
        ("marquez_url: http://a\nmarquez_api_key: k", {"MARQUEZ_URL": "http://b"}, "", None),
    ],
)
def test_a_key_goes_only_to_the_address_that_it_was_given_with(
    tmp_path: Path, config: str, env: dict[str, str], project: str, key: str | None
) -> None:
    folder = tmp_path / "config" / "waybill"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(config)
    (tmp_path / "waybill.yaml").write_text(project)
    env["XDG_CONFIG_HOME"] = str(tmp_path / "config")
    assert Settings.load({}, env=env, cwd=tmp_path).marquez_api_key == key
    if "MARQUEZ_URL" in env and key:
        given = Settings.load({"marquez_url": "http://c"}, env=env, cwd=tmp_path)
        assert (given.marquez_url, given.marquez_api_key) == ("http://c", None)


def test_a_file_that_nobody_named_changes_neither_the_backend_of_a_home_nor_what_is_redacted(
    tmp_path: Path,
) -> None:
    agreed_on = {"home": tmp_path / "home", "marquez_url": "http://a", "redact": ["run.facets.a"]}
    with contextlib.closing(Journal(tmp_path / "home")) as journal:
        agree(journal, Settings.load(agreed_on, env={}, cwd=tmp_path))
        (tmp_path / "waybill.yaml").write_text(
            "marquez_url: http://b\nredact: [run.facets.b]\njournal_retain_days: 3"
        )
        found = agree(journal, Settings.load({"home": tmp_path / "home"}, env={}, cwd=tmp_path))
        assert (found.marquez_url, found.redact) == ("http://a", ("run.facets.a", "run.facets.b"))
        assert found.journal_retain_days == 3
        assert (agreed(journal)["marquez_url"], agreed(journal)["redact"]) == ("http://a", ["run.facets.a"])
        named = Settings.load({"home": tmp_path / "home"}, env={"MARQUEZ_URL": "http://b"}, cwd=tmp_path)
        assert agree(journal, named).marquez_url == "http://b"
