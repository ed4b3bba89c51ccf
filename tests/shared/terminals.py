"""Commands on a terminal of their own, and Ctrl-C."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from fcntl import ioctl

EACH = """if True:
    import json, sys
    from waybill.cli import main
    for words in json.loads(sys.argv[1]):
        sys.argv = ["waybill", *words]
        try:
            main()
        except SystemExit as ended:
            print(chr(12), ended.code or 0, chr(12), sep="", flush=True)
"""


def take_ctrl_c() -> None:
    """Have a new process take Ctrl-C, which a shell lets be ignored where the tests run in the background."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def on_terminal(
    command: list[str], answers: str = "", columns: int = 100, **environment: str
) -> tuple[int, str]:
    """Run a command on a terminal on which this is typed; its exit code and what it shows."""
    main, terminal = pty.openpty()
    ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    variables = os.environ | {"TERM": "xterm-256color"} | environment
    variables.pop("COLUMNS", None)
    with subprocess.Popen(
        command, stdin=terminal, stdout=terminal, stderr=terminal, env=variables
    ) as process:
        os.close(terminal)
        os.write(main, answers.encode())
        shown = b""
        try:
            while part := os.read(main, 4096):
                shown += part
        except OSError:
            pass  # on Linux, this means that the other side is closed
    os.close(main)
    return process.returncode, shown.decode()


def each_on_terminal(commands: list[list[str]], columns: int = 100) -> list[tuple[int, str]]:
    """Run `waybill` with each of these arguments, all in one process."""
    _, shown = on_terminal([sys.executable, "-c", EACH, json.dumps(commands)], columns=columns)
    return [(int(code), text) for text, code in re.findall("(.*?)\f(\\d+)\f\r\n", shown, re.DOTALL)]
