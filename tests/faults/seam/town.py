"""The town that a storm hits: a collector, its clients, pipelines and their runner.

All of it is real: `waybill serve`, the OpenLineage client, HTTP. If this user may mount disks, the home and
the root each have one. Every process reads the same clock, which can be shifted.
"""

from __future__ import annotations

import contextlib
import gzip
import http.client
import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any, Final

from seam.chance import chance_from
from seam.emissions import emission
from seam.ledger import Ledger

from waybill.transport import Kind, locks

MOUNT: Final = shutil.which("mount") or "/usr/bin/mount"
UMOUNT: Final = shutil.which("umount") or "/usr/bin/umount"
CLOCK: Final = Path(__file__).parent / "clock"
EMITTER: Final = Path(__file__).parent / "emitter.py"
WAYBILL: Final = str(Path(sys.executable).parent / "waybill")
DISK_BYTES: Final = 4 * 2**30
INODES: Final = 200_000
EMITTERS: Final = 2
SENDERS: Final = 2
APART: Final = 10_000_000
"""The distance between the first numbers of two senders."""

_JSON: Final = {"Content-Type": "application/json"}
_RECORDS: Final = 10
_PAUSE_S: Final = 0.1
_KEPT: Final = {200, 201, 202}
_LATER: Final = {503, 507}
_ENDS_WITHIN_S: Final = 60.0
_FLUSHES_MAX: Final = 10
_COMMAND_S: Final = 1_800.0  # a repair after an hour of damage reads the whole archive


class Disk:
    """A folder; if this user may mount disks, a separate disk whose space and inodes can be taken away."""

    def __init__(self, place: Path) -> None:
        self.place = place
        place.mkdir()
        mounting = [
            "mount",
            "-t",
            "tmpfs",
            "-o",
            f"size={DISK_BYTES},nr_inodes={INODES}",
            "storm",
            str(place),
        ]
        can = os.geteuid() == 0 and Path(MOUNT).exists()
        self.is_mounted = can and subprocess.run(mounting, capture_output=True, check=False).returncode == 0

    def limit(self, *, room: bool = False, inodes: bool = False) -> None:
        """Take away all free space or inodes, or give everything back."""
        used = os.statvfs(self.place)
        size_bytes = (used.f_blocks - used.f_bfree) * used.f_frsize + 2**16 if room else DISK_BYTES
        count = used.f_files - used.f_ffree + 1 if inodes else INODES
        options = f"remount,size={size_bytes},nr_inodes={count}"
        subprocess.run([MOUNT, "-o", options, str(self.place)], check=False, capture_output=True)

    def close(self) -> None:
        if self.is_mounted:
            subprocess.run([UMOUNT, "--lazy", str(self.place)], check=True)


class Sender(threading.Thread):
    """A client of the collector that records what was acknowledged."""

    def __init__(self, address: Callable[[], str], first: int, chance: Random) -> None:
        super().__init__(daemon=True)
        self.ledger = Ledger()
        self.at_work = threading.Lock()
        """Held during a request; holding it elsewhere pauses this sender."""
        self.stopping = threading.Event()
        self._address = address
        self._numbers = itertools.count(first)
        self._chance = chance

    def run(self) -> None:
        while not self.stopping.wait(_PAUSE_S * self._chance.random()):
            with self.at_work:
                numbers = list(itertools.islice(self._numbers, 3 * _RECORDS))
                arrays = [number for number in numbers if number % 3 == 2]
                events = [number for number in numbers if number % 3 != 2][: self._chance.randrange(1, 6)]
                self._send("/provenance", arrays, Kind.PROVENANCE)
                self._send("/api/v1/lineage/batch", events, Kind.OPENLINEAGE)

    def _send(self, path: str, numbers: list[int], kind: Kind) -> None:
        items = [body for number in numbers for _, body, _ in emission(number).items]
        parts = [body[1:-1] if kind is Kind.PROVENANCE else body for body in items]
        self.ledger.offered += numbers
        body = b"[" + b",".join(parts) + b"]"
        headers = dict(_JSON)
        if self._chance.random() < 0.5:
            body, headers["Content-Encoding"] = gzip.compress(body, 1), "gzip"
        try:
            connection = http.client.HTTPConnection(self._address(), timeout=60)
            try:
                connection.request("POST", path, body, headers)
                response = connection.getresponse()
                answer = response.read()
            finally:
                connection.close()
        except (OSError, http.client.HTTPException, ValueError):
            return
        if response.status in _KEPT:
            self.ledger.acknowledged.update(numbers)
        elif response.status not in _LATER:
            self.ledger.faults.append(f"{path} was answered {response.status}: {answer[:300]!r}")


class Emitter:
    """A pipeline's process, and its reports.

    Args:
        first: the number of its first emission.
        env: its environment.
    """

    def __init__(self, home: Path, root: Path, first: int, durability: str, env: Mapping[str, str]) -> None:
        self.ledger = Ledger()
        self._begun = threading.Event()
        path = os.pathsep.join((str(EMITTER.parent.parent), env.get("PYTHONPATH", "")))
        words = [sys.executable, str(EMITTER), str(home), str(root), str(first), durability]
        self._process = subprocess.Popen(
            words,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**env, "PYTHONPATH": path},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def wait_until_begun(self) -> None:
        """Wait until it has said something; only pytest limits how long a busy machine may take for that."""
        while not self._begun.wait(1):
            assert not self.has_ended(), "the emitter died by itself"

    def kill(self) -> None:
        """End it as `kill -9` does, and take down what it had said."""
        self._process.kill()
        self._process.wait()
        self._reader.join()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.endswith(b"\n"):  # the kill may have cut the last line short
                self.ledger.take(line)
                self._begun.set()


class Town:
    """Everything in the town.

    Attributes:
        ledger: the reports of senders and pipelines that have ended.
        clock: the file with the number of seconds by which every process's clock is wrong.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.ledger = Ledger()
        self.folder = folder
        self._chance = chance_from(seed, "town")
        self.disks = {name: Disk(folder / name) for name in ("of-home", "of-root")}
        self.home, self.root = folder / "of-home" / "home", folder / "of-root" / "root"
        self._firsts = itertools.count(1, APART)
        self.clock = folder / "shift"
        self._env = dict(os.environ) | {"PYTHONPATH": str(CLOCK), "STORM_CLOCK": str(self.clock)}
        self.port = _free_port()
        self.collector: subprocess.Popen[bytes] | None = None
        self.emitters: list[Emitter] = []
        self.senders: list[Sender] = []
        self._log = (folder / "collector.log").open("ab")
        self._said = (folder / "town.log").open("w")

    def begin(self) -> None:
        """Start the collector, its clients and the pipelines."""
        self.keep_collector()
        for _ in range(SENDERS):
            sender = Sender(
                lambda: f"127.0.0.1:{self.port}", next(self._firsts), chance_from(self._chance.random())
            )
            self.senders.append(sender)
            sender.start()
        self.keep_emitters()

    def close(self) -> None:
        """End all processes and release the disks."""
        for sender in self.senders:
            sender.stopping.set()
        self.kill_all()
        for disk in self.disks.values():
            disk.close()
        self._log.close()
        self._said.close()

    def keep(self) -> None:
        """Copy the files of separate disks for later inspection; closing the town releases the disks."""
        for name, disk in self.disks.items():
            if disk.is_mounted:
                shutil.copytree(disk.place, self.folder / f"kept-{name}")

    def note(self, what: str) -> None:
        self._said.write(f"{time.monotonic():.2f} {what}\n")
        self._said.flush()

    def keep_emitters(self) -> None:
        for emitter in [one for one in self.emitters if one.has_ended()]:
            self.emitters.remove(emitter)
            self.end_emitter(emitter)
        slow = {**self._env, "EMITTER_PAUSE_S": "0.05"}
        while len(self.emitters) < EMITTERS:
            durability = self._chance.choice(("power", "process"))
            emitter = Emitter(self.home, self.root, next(self._firsts), durability, slow)
            self.emitters.append(emitter)

    def end_emitter(self, emitter: Emitter) -> None:
        emitter.kill()
        self._enter(emitter.ledger)

    def _enter(self, ledger: Ledger) -> None:
        self.ledger.offered += ledger.offered
        self.ledger.acknowledged |= ledger.acknowledged
        self.ledger.faults += ledger.faults

    def keep_collector(self) -> None:
        if self.collector is not None and self.collector.poll() is None:
            return
        words = [WAYBILL, "serve", "--listen", f"127.0.0.1:{self.port}"]
        words += ["--workers", "2", "--drain-timeout", "5"]
        words += ["--home", str(self.home), "--root", str(self.root)]
        words += ["--system-name", "tests", "--provenance-enabled"]
        self.collector = subprocess.Popen(
            words, stdout=self._log, stderr=self._log, env=self._env, start_new_session=True
        )

    def kill_all(self) -> None:
        while self.emitters:
            self.end_emitter(self.emitters.pop())
        if self.collector is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.collector.pid, signal.SIGKILL)
            self.collector.wait()
        self.kill_runner()

    def kill_runner(self) -> None:
        """Kill the runner, and started runners that do not hold the lease yet."""
        for pid in runners_of(self.home):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
                os.kill(pid, signal.SIGKILL)
            while _is_alive(pid):
                time.sleep(0.01)

    def pause(self) -> None:
        """End the pipelines, and pause the senders."""
        for sender in self.senders:
            sender.at_work.acquire()
        while self.emitters:
            self.end_emitter(self.emitters.pop())

    def end_senders(self) -> None:
        """End the paused senders, and enter their reports."""
        while self.senders:
            sender = self.senders.pop()
            sender.stopping.set()
            sender.at_work.release()
            sender.join()
            self._enter(sender.ledger)

    def flush(self) -> None:
        """File everything; what a shortage has made poison is tried again."""
        for _ in range(_FLUSHES_MAX):
            if self.waybill("flush", "--timeout", "120", may_fail=True) is not None:
                return
            self.waybill("poison", "retry", "--all", may_fail=True)
            time.sleep(1)
        self.waybill("flush", "--timeout", "120")

    def waybill(self, *words: str, may_fail: bool = False) -> str | None:
        own = ["--home", str(self.home)]
        own += [] if words[0] == "poison" else ["--root", str(self.root)]
        done = subprocess.run(
            [WAYBILL, *words, *own],
            capture_output=True,
            text=True,
            env=self._env,
            check=False,
            timeout=_COMMAND_S,
        )
        self.note(f"waybill {' '.join(words)}: {done.returncode} {done.stderr[-300:]!r}")
        if done.returncode and not may_fail:
            raise AssertionError(
                f"waybill {' '.join(words)}: {done.returncode}\n{done.stdout}\n{done.stderr}"
            )
        return None if done.returncode else done.stdout

    def findings(self) -> list[dict[str, Any]]:
        words = [WAYBILL, "verify", str(self.root), "--json", "--home", str(self.home)]
        done = subprocess.run(words, capture_output=True, text=True, env=self._env, check=False)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        return [line for line in lines if line["kind"] == "finding" and not line.get("accepted")]


def runner_of(home: Path) -> int | None:
    return locks.holder(home) if (home / "runner.lock").exists() and locks.is_held(home) else None


def runners_of(home: Path) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().decode(errors="replace").split("\0")
            if "waybill.transport" in words and str(home) in words:
                found.append(int(path.parent.name))
    return found


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
