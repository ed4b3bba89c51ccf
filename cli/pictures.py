"""The options by which a command draws instead of printing its text, and the writing of what they ask for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

import typer

from waybill.transport.files import Files, publish

from . import console

AsMermaid = Annotated[bool, typer.Option("--mermaid", help="Print a Mermaid flowchart.")]
AsDot = Annotated[bool, typer.Option("--dot", help="Print a graph in Graphviz's language.")]
SvgFile = Annotated[
    Path | None, typer.Option("--svg", metavar="FILE", help="Write a drawing for a browser; - prints it.")
]
GraphmlFile = Annotated[
    Path | None,
    typer.Option("--graphml", metavar="FILE", help="Write GraphML, with nothing folded; - prints it."),
]

STDOUT: Final = Path("-")


def refuse_several(forms: Mapping[str, object]) -> None:
    """Raise a `typer.BadParameter` if more than one form was asked for; `forms` are options and values."""
    asked = [option for option, value in forms.items() if value]
    if len(asked) > 1:
        raise typer.BadParameter(f"give only one of {', '.join(asked)}", param_hint=asked[-1])


def write(path: Path, text: str) -> None:
    """Write a whole file, and say so; `STDOUT` is printed."""
    content = text.encode(errors="backslashreplace")
    if path == STDOUT:
        console.body(content.rstrip(b"\n"))
        return
    publish(Files(), path.absolute(), content)
    console.note(f"wrote {path}")
