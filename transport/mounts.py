"""The file system that a folder is on."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from .errors import JournalError

NETWORK_FILE_SYSTEMS: Final = frozenset(
    {
        "afs",
        "ceph",
        "cifs",
        "fuse.ceph",
        "fuse.glusterfs",
        "fuse.sshfs",
        "glusterfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "smb3",
        "smbfs",
    }
)
"""The kernel's names of file systems on which SQLite's WAL does not work between hosts."""

MEMORY_FILE_SYSTEMS: Final = frozenset({"tmpfs", "ramfs"})
"""The kernel's names of file systems whose files are lost when the machine restarts."""

_MOUNTS: Final = Path("/proc/self/mounts")
_OCTAL_ESCAPES: Final = {"\\040": " ", "\\011": "\t", "\\012": "\n", "\\134": "\\"}


def file_system_of(folder: Path) -> str | None:
    """The kernel's name of a folder's file system; None if it is unknown."""
    if not _MOUNTS.is_file():
        return None
    resolved = folder.resolve()
    found: tuple[int, str] | None = None
    for line in _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        _, mount, kind, *_ = line.split(" ")
        for escape, character in _OCTAL_ESCAPES.items():
            mount = mount.replace(escape, character)
        # A later mount at the same place hides an earlier one.
        if resolved.is_relative_to(mount) and (found is None or len(mount) >= found[0]):
            found = len(mount), kind
    return found[1] if found else None


def refuse_network_file_system(home: Path) -> None:
    """Raise a `JournalError` for a home that several hosts could open at once."""
    kind = file_system_of(home)
    if kind in NETWORK_FILE_SYSTEMS:
        raise JournalError(
            f"the home {home} is on a network file system ({kind}); give a folder on a local disk by "
            "`home: DIR` in waybill.yaml"
        )
