"""Work in a process of its own that need not import anything again."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable


def in_fork(work: Callable[[], object]) -> int:
    """Do some work in a fork of this process; how that ended, as `subprocess` tells it."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:  # noqa: BLE001 - nothing of the parent's may run here
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
