"""The command `waybill`, called in the process of the tests."""

from __future__ import annotations

import contextlib
import io
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from waybill.cli.app import main


@contextlib.contextmanager
def _same_logging() -> Iterator[None]:
    """Take back how a command has set up the log of its process, which is that of the tests, too."""
    loggers = [logging.getLogger(), logging.getLogger("waybill")]
    before = [(logger, logger.handlers[:], logger.level) for logger in loggers]
    try:
        yield
    finally:
        for logger, handlers, level in before:
            logger.handlers[:] = handlers
            logger.setLevel(level)


def call(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run ``waybill`` with these arguments and no input in this process: a fraction of the time."""
    words = ["waybill", *map(str, arguments)]
    raw_out, raw_err = io.BytesIO(), io.BytesIO()
    out, err = (io.TextIOWrapper(raw, encoding="utf-8", write_through=True) for raw in (raw_out, raw_err))
    with (
        _same_logging(),
        mock.patch.object(sys, "argv", words),
        mock.patch.object(sys, "stdin", io.StringIO()),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as ended,
    ):
        main()
    printed = raw_out.getvalue().decode(), raw_err.getvalue().decode()
    return subprocess.CompletedProcess(words, int(ended.value.code or 0), *printed)
