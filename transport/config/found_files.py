"""Files of settings: found by their place, believed only where nobody else could have written them.

A program may run in a folder that others can write. Whoever could slip in a ``waybill.yaml`` there would
decide where its events go, and which key goes with them. So a file counts only if it and its folder belong to
this user or to root, and nobody else may write to them. A pipeline must not be stopped by such a file either,
nor by one that is no settings at all: it goes on without the file.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Final

from ..errors import SettingsFileError, reason_of
from ..files import open_at_once

_BYTES_MAX: Final = 2**20
_ROOT_USER: Final = 0


def settings_files(env: Mapping[str, str] | None = None, cwd: Path | None = None) -> tuple[Path, ...]:
    """The files that may hold settings: the working folder's, then the user's, if that user has a home."""
    env = os.environ if env is None else env
    own = (cwd or Path.cwd()) / "waybill.yaml"
    try:
        config = Path(env.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    except RuntimeError:  # in a container, the user may have no home
        return (own,)
    return own, config / "waybill" / "config.yaml"


def read_settings_file(path: Path, *, by_group: bool = False) -> Mapping[str, object]:
    """The settings in a file, by name; none if there is no file.

    Args:
        path: the file.
        by_group: whether the group of the file and of its folder may write to them.

    Raises:
        SettingsFileError: others could have written it, it cannot be read, or it does not hold settings.
    """
    try:
        text = _read(path, by_group=by_group)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError) as error:
        what = f"cannot be read ({reason_of(error)}); correct the file, its permissions, or the variable HOME"
        raise SettingsFileError(str(path), what) from None
    return _parse(path, text)


def _read(path: Path, *, by_group: bool) -> str:
    with open(path, "rb", opener=open_at_once) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise SettingsFileError(str(path), "is not a regular file; move it away")
        if doubt := find_doubt(path, by_group=by_group):
            raise SettingsFileError(str(path), doubt)
        content = file.read(_BYTES_MAX + 1)
    if len(content) > _BYTES_MAX:
        raise SettingsFileError(str(path), "is larger than 1 MB, so it holds no settings; move it away")
    return content.decode("utf-8")


def find_doubt(path: Path, *, by_group: bool = False) -> str:
    """Why a file is not believed, as the end of a sentence about it; empty: it is.

    Nobody but this user and root may write to it, to its folder, and to those of a file that it is a link to.

    Args:
        path: the file.
        by_group: whether the group of each may write to it.

    Raises:
        OSError: it is not there, or may not be looked at.
    """
    for place in dict.fromkeys((path, path.parent, path.resolve().parent)):
        found, which = place.stat(), "it" if place == path else f"its folder {place}"
        if found.st_uid not in {os.geteuid(), _ROOT_USER}:
            return f"does not count, since {which} belongs to another user; use a file and folder of your own"
        is_for_group = bool(found.st_mode & stat.S_IWGRP) and not (by_group or _is_private(found.st_gid))
        if found.st_mode & stat.S_IWOTH or is_for_group:
            revoked = "go-w" if found.st_mode & stat.S_IWGRP else "o-w"
            return f"does not count, since others may write to {which}; run `chmod {revoked} {place}`"
    return ""


def _is_private(group: int) -> bool:
    """Whether a group has no member but this user, as the one that many systems make for each user."""
    try:
        user, named = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    return user.pw_gid == group and user.pw_name == named.gr_name and not {*named.gr_mem} - {user.pw_name}


def _parse(path: Path, text: str) -> Mapping[str, object]:
    import yaml  # here, so that a pipeline without a settings file does not load the parser

    from .strict_yaml import StrictLoader

    try:
        content = yaml.load(text, StrictLoader)  # noqa: S506 - it is safer than the safe one
    except yaml.YAMLError as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        where = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        why = f" ({problem})" if problem else ""
        what = f"is not valid YAML{where}; write each setting as `name: value`, and quote special characters"
        raise SettingsFileError(str(path), what + why) from None
    if not isinstance(content, dict | None):
        what = "must hold names with values, such as `root: /data/lineage`"
        raise SettingsFileError(str(path), what)
    # YAML turns text that looks like a date into a date.
    return {
        str(name): value.isoformat() if isinstance(value, date) else value
        for name, value in (content or {}).items()
    }
