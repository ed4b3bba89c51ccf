"""Which file of service levels a collector believes, and which of those that it names."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from waybill.lineage.levels import read_plan
from waybill.lineage.levels.declared import read_declared
from waybill.pipelines.yaml_files import YamlFileError
from waybill.transport import Journal, Settings
from waybill.transport.config import agree

if TYPE_CHECKING:
    from pathlib import Path

ANY_GROUP = 54_321
OTHER_USER = 12_345

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")


def settings_of(home: Path, mode: str) -> Settings:
    journal = Journal(home)
    settings = agree(
        journal, Settings.load({"home": home, "home_mode": mode, "runner": "none"}, env={}, cwd=home)
    )
    journal.close()
    return settings


def write(home: Path, text: str) -> Path:
    file = home / "slis.yaml"
    file.write_text(text)
    return file


def test_a_file_counts_if_nobody_could_write_it_who_may_not_write_to_the_home(home: Path) -> None:
    for mode, owner, group, permissions, why in (
        ("private", None, None, 0o644, None),
        ("private", OTHER_USER, None, 0o644, "does not count, since it belongs to another user"),
        ("private", None, ANY_GROUP, 0o664, "others may write to it; run `chmod go-w "),
        ("group", None, ANY_GROUP, 0o664, None),
        ("group", OTHER_USER, None, 0o644, "does not count, since it belongs to another user"),
        ("group", None, ANY_GROUP, 0o666, "others may write to it"),
    ):
        settings = settings_of(home.with_name(mode), mode)
        file = write(settings.home, "external: [a/*]")
        os.chown(file, os.geteuid() if owner is None else owner, os.getegid() if group is None else group)
        file.chmod(permissions)
        if why is None:
            assert read_plan(settings).file.external == ("a/*",)
        else:
            with pytest.raises(YamlFileError, match=why):
                read_plan(settings)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("on_alert:\n  command: ['true']", "on_alert.command"),
        ("inventory:\n  url: http://127.0.0.1:9/\n  token_variable: HOME", "inventory.token_variable"),
    ],
)
def test_a_home_of_a_group_runs_no_command_and_names_no_secret(home: Path, text: str, place: str) -> None:
    settings = settings_of(home, "group")
    write(home, text)
    with pytest.raises(YamlFileError, match="the home is of a group") as refused:
        read_plan(settings)
    assert refused.value.field == place
    assert refused.value.line > 1
    write(home, "on_alert:\n  webhook: http://127.0.0.1:9/")
    assert read_plan(settings).file.on_alert is not None


def test_what_the_file_names_is_believed_by_the_same_rule(home: Path) -> None:
    settings = settings_of(home, "private")
    write(home, "inventory:\n  csv: [known.csv]\nexpected:\n  csv: [flows.csv]")
    known, flows = home / "known.csv", home / "flows.csv"
    known.write_text("namespace,name\nn,d\n")
    flows.write_text("source_namespace,source,target_namespace,target\nn,d,n,e\n")
    declared = read_declared(read_plan(settings))
    assert (len(declared.datasets), len(declared.flows)) == (1, 1)
    os.chown(known, OTHER_USER, -1)
    flows.chmod(0o666)
    declared = read_declared(read_plan(settings))
    assert (declared.datasets, declared.flows) == ((), ())
    assert "known.csv does not count, since it belongs to another user" in declared.coverage_lack
    assert "flows.csv does not count, since others may write to it" in declared.accuracy_lack


def test_a_manifest_of_another_user_is_no_inventory(home: Path) -> None:
    settings = settings_of(home, "private")
    write(home, "inventory:\n  manifests: [packages]")
    manifest = home / "packages" / "one" / "dk.yaml"
    manifest.parent.mkdir(parents=True)
    manifest.write_text(
        "metadata: {name: one}\nruntime: {command: 'true'}\noutputs: [{name: o, binding: a.csv}]\n"
    )
    assert len(read_declared(read_plan(settings)).datasets) == 1
    os.chown(manifest, OTHER_USER, -1)
    declared = read_declared(read_plan(settings))
    assert declared.datasets == ()
    assert "it does not count, since it belongs to another user" in declared.coverage_lack
