"""`waybill mcp`: questions from a language model, by the Model Context Protocol over stdin and stdout."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

from waybill.transport import MissingExtraError, Settings, WaybillError
from waybill.transport.errors import sentence_of
from waybill.transport.process import leave_numpy_out

from ..arguments import valued
from ..home import check_home, open_answers, open_graph
from ..options import with_settings

if TYPE_CHECKING:
    from mcp.server import Server

    from waybill.lineage.answers import Answers
    from waybill.lineage.levels import Levels
    from waybill.lineage.tools import Arguments, Tool

ANSWER_BYTES_MAX: Final = 512 * 2**10
"""The maximum size of one answer: a model cannot read more."""

Open = Callable[[], AbstractContextManager["Answers"]]


@with_settings("home", "root", "slis", "marquez_api_key")
def mcp(
    settings: Settings,
    *,
    collector: Annotated[
        str | None,
        valued(
            "URL",
            "Ask this collector instead of the home; it decides by the key what may be read.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Let a language model ask where files and datasets came from, and what depends on them.

    Serves find, trace, lineage, impact, origins, search and slis as tools of the Model Context Protocol, over
    stdin and stdout; a client starts this command. All of them only read. With --collector, the key is that
    of the setting marquez_api_key, OPENLINEAGE_API_KEY in the environment; it needs the role read. Needs the
    extra `mcp`.

    Examples:
      waybill mcp --home /srv/waybill
      claude mcp add waybill -- waybill mcp --collector http://collector:8090
    """
    leave_numpy_out()
    try:
        from mcp.server import stdio
    except ModuleNotFoundError:
        raise MissingExtraError("`waybill mcp`", "mcp") from None

    from waybill.lineage.answers import CollectorClient
    from waybill.lineage.tools import list_tools

    if collector is None:
        check_home(settings)
        tools = [*list_tools(), _tool_of_levels(partial(_measure, settings))]
        server = _server_of(tools, partial(_open_home, settings))
    else:
        client = CollectorClient(collector, settings.marquez_api_key)
        tools = [*list_tools(), _tool_of_levels(lambda _: client.levels())]
        server = _server_of(tools, client.begin)

    async def serve() -> None:
        async with stdio.stdio_server() as streams:
            read, write = streams
            await server.run(read, write, server.create_initialization_options())

    asyncio.run(serve())


@contextlib.contextmanager
def _open_home(settings: Settings) -> Iterator[Answers]:
    with open_answers(settings, None) as (answers, _, _):
        yield answers


def _measure(settings: Settings, _: Answers) -> Levels:
    from waybill.lineage.levels import measure, read_plan

    with open_graph(settings) as (answers, journal):
        return measure(answers, journal, read_plan(settings))


def _tool_of_levels(ask: Callable[[Answers], object]) -> Tool:
    from waybill.lineage.tools import Tool

    return Tool(
        "slis",
        "Show the service levels: how complete, fresh and sound lineage is, and whether objectives are met.",
        {"type": "object", "properties": {}, "additionalProperties": False},
        lambda answers, _: ask(answers),
    )


def _server_of(tools: Sequence[Tool], open_: Open) -> Server[Any]:
    """The server that offers these tools."""
    from mcp import types
    from mcp.server import Server

    by_name = {tool.name: tool for tool in tools}
    only_reads = types.ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
    told = [
        types.Tool(
            name=tool.name,
            description=tool.description,
            input_schema=dict(tool.schema),
            annotations=only_reads,
        )
        for tool in tools
    ]

    async def list_all(*_: object) -> types.ListToolsResult:
        return types.ListToolsResult(tools=told)

    async def call(_: object, params: types.CallToolRequestParams) -> types.CallToolResult:
        tool = by_name.get(params.name)
        if tool is None:
            text, is_error = f"there is no tool {params.name}; the tools are {', '.join(by_name)}", True
        else:
            text, is_error = await asyncio.to_thread(_answer, tool, open_, params.arguments or {})
        return types.CallToolResult(content=[types.TextContent(text=text)], is_error=is_error)

    return Server("waybill", version=version("waybill-lineage"), on_list_tools=list_all, on_call_tool=call)


def _answer(tool: Tool, open_: Open, arguments: Arguments) -> tuple[str, bool]:
    """The text of an answer, and whether it is an error."""
    try:
        with open_() as answers:
            answer = tool.ask(answers, arguments)
            told = {"answer": answer, "notes": [*answers.notes]}
    except WaybillError as error:
        return sentence_of(error), True
    text = msgspec.json.encode(told).decode()
    if len(text) > ANSWER_BYTES_MAX:
        return f"the answer has {len(text):,} characters, more than {ANSWER_BYTES_MAX:,}; ask for less", True
    return text, False
