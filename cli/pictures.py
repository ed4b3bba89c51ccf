"""The options by which a command draws instead of printing its text, and the writing of what they ask for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from waybill.transport.files import Files, publish

from . import console
from .arguments import flag, valued

AsMermaid = Annotated[bool, flag("--mermaid", "Print a Mermaid flowchart.")]
AsDot = Annotated[bool, flag("--dot", "Print a graph in Graphviz's language.")]
SvgFile = Annotated[Path | None, valued("FILE", "Write a drawing for a browser; - prints it.", "--svg")]
GraphmlFile = Annotated[
    Path | None, valued("FILE", "Write GraphML, with nothing folded; - prints it.", "--graphml")
]

if TYPE_CHECKING:
    from waybill.lineage.drawing import Arrow, Box

STDOUT: Final = Path("-")


def refuse_several(forms: Mapping[str, object]) -> None:
    """Raise a `typer.BadParameter` if more than one form was asked for; `forms` are options and values."""
    asked = [option for option, value in forms.items() if value]
    if len(asked) > 1:
        raise typer.BadParameter(f"give only one of {', '.join(asked)}", param_hint=asked[-1])


def draw(
    forms: Mapping[str, object],
    boxes_of: Callable[[int | None], tuple[list[Box], list[Arrow]]],
    graphml: Callable[[], str],
    *,
    unfold: bool,
) -> bool:
    """Write the picture that was asked for, and return whether one was.

    Args:
        forms: the options of the pictures and their values.
        boxes_of: what to draw; see `waybill.lineage.drawing.draw`.
        graphml: the same as GraphML.
        unfold: whether nothing is folded.

    Raises:
        TooLargeForMermaidError: Mermaid does not draw so much.
    """
    from waybill.lineage import drawing

    for option, value in forms.items():
        if value:
            form = option.removeprefix("--")
            text = graphml() if form == "graphml" else drawing.draw(form, boxes_of, unfold=unfold)
            write(value if isinstance(value, Path) else STDOUT, text)
            return True
    return False


def rails(is_last: tuple[bool, ...]) -> tuple[str, str]:
    """What is before a line of a tree, and before those below it; see `waybill.lineage.drawing.branches`."""
    beside = "".join("   " if ended else "│  " for ended in is_last)
    branch = f"{beside[:-3]}{'└─ ' if is_last[-1] else '├─ '}" if is_last else ""
    return branch, beside


def write(path: Path, text: str) -> None:
    """Write a whole file, and say so; `STDOUT` is printed."""
    content = text.encode(errors="backslashreplace")
    if path == STDOUT:
        console.body(content.rstrip(b"\n"))
        return
    publish(Files(), path.absolute(), content)
    console.note(f"wrote {path}")
