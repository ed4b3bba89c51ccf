"""Plain spark-submit, with an event log to catch up from afterwards."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Final

from ..runtime import find_java, spark_defaults, spark_home

_ENABLED: Final = "spark.eventLog.enabled"
_FOLDER: Final = "spark.eventLog.dir"
_SIGNALLED: Final = 128
_PASSED_ON: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def submit(arguments: Sequence[str], folder: Path) -> int:
    """Run spark-submit with these arguments and its event logs in this folder; returns its exit status.

    If the user has already set up event logs, they stay where they are. A signal that ends this program ends
    spark-submit first; the result is then the status that a shell would give.

    Raises:
        SparkSetupError: there is no Spark, or no Java.
        OSError: spark-submit cannot be started.
    """
    program = _program()
    ours = [] if _logs_already(arguments) else [(_ENABLED, "true"), (_FOLDER, folder.absolute().as_uri())]
    options = [part for name, value in ours for part in ("--conf", f"{name}={value}")]
    env = dict(os.environ)
    if not env.get("JAVA_HOME") and shutil.which("java") is None:
        env["JAVA_HOME"] = str(find_java().home)
    with subprocess.Popen([program, *options, *arguments], env=env) as process:

        def hand_on(number: int, _: FrameType | None) -> None:
            # The terminal sends Ctrl-C to spark-submit, too.
            if number != signal.SIGINT:
                process.send_signal(number)

        before = {number: signal.signal(number, hand_on) for number in _PASSED_ON}
        try:
            status = process.wait()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
    return _SIGNALLED - status if status < 0 else status


def _program() -> str:
    home = os.environ.get("SPARK_HOME")
    on_path = None if home else shutil.which("spark-submit")
    return on_path or str(Path(home or spark_home()) / "bin" / "spark-submit")


def _logs_already(arguments: Sequence[str]) -> bool:
    given = dict(_options(arguments))
    home = os.environ.get("SPARK_HOME")
    defaults = spark_defaults(Path(home) if home else spark_home())
    return given.get(_ENABLED, defaults.get(_ENABLED, "")).strip().lower() == "true"


def _options(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The Spark options among arguments, possibly including the program's own options."""
    for at, argument in enumerate(arguments):
        name, _, value = argument.partition("=")
        if name in {"--conf", "-c"}:
            name, _, value = (value or "".join(arguments[at + 1 : at + 2])).partition("=")
            yield name, value
