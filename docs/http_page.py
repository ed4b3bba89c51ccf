"""The collector's HTTP interface for people, made of its OpenAPI description: `docs/http.md`, and `/docs`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from markdown_it import MarkdownIt

from waybill.collector.openapi import description

_Json = Mapping[str, Any]

_HEAD: Final = """\
# The HTTP interface

This page is made of the collector's OpenAPI description, which every collector serves at `/openapi.json`, and
at `/docs` for people; `python docs/reference.py` writes it. What an answer means, and which limits
there are, is told in [the collector](collector.md).

Every request needs a key as soon as there is one (`Authorization: Bearer …`), but for those that say
otherwise.
"""

_HTML_HEAD: Final = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Waybill collector</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; }
code { background: #8882; border-radius: 3px; font-size: 0.9em; padding: 0 0.2em; }
td, th { padding: 0.1rem 1rem 0.1rem 0; text-align: left; vertical-align: top; }
</style>
<h1>Waybill collector</h1>
<p>For programs: <a href="openapi.json">openapi.json</a>.</p>
"""


def http_page() -> str:
    """The page of the docs, as Markdown."""
    return f"{_HEAD}\n{_interface()}"


def html_page() -> str:
    """The page that the collector serves at `/docs`, which loads nothing."""
    html = MarkdownIt().enable("table").render(_interface())
    html = re.sub(r"<h3>(\w+)", lambda name: f'<h3 id="{name[1].lower()}">{name[1]}', html)
    return f"{_HTML_HEAD}{html}"


def _interface() -> str:
    said = description()
    parts = [
        "\n".join(_operation(method.upper(), path, operation))
        for path, methods in said["paths"].items()
        for method, operation in methods.items()
    ]
    parts.append("## Schemas\n")
    parts += ["\n".join(_schema(*named)) for named in sorted(said["components"]["schemas"].items())]
    return "\n".join(parts)


def _operation(method: str, path: str, operation: _Json) -> Iterator[str]:
    yield f"## {method} {path}\n"
    yield f"{operation['summary']}.{' Needs no key.' if operation.get('security') == [] else ''}\n"
    if parameters := operation.get("parameters"):
        fields = {one["name"]: {**one["schema"], **one} for one in parameters}
        required = {one["name"] for one in parameters if one.get("required")}
        yield from _fields("parameter", fields, required)
    if body := operation.get("requestBody"):
        yield f"Takes {_contents(body)}.\n"
    refused = [status for status, answer in operation["responses"].items() if "$ref" in answer]
    given = [
        (status, _contents(answer) or answer["description"])
        for status, answer in operation["responses"].items()
        if status not in refused
    ]
    problem = [(", ".join(refused), "a [problem](#problemdetails) (RFC 9457)")] if refused else []
    yield from _table(("answer", "with"), given + problem)


def _schema(name: str, schema: _Json) -> Iterator[str]:
    yield f"### {name}\n"
    if said := schema.get("description"):
        yield f"{said}\n"
    if fields := schema.get("properties"):
        yield from _fields("field", fields, schema.get("required", ()))
    else:
        yield f"{_type(schema)}\n"


def _fields(title: str, fields: Mapping[str, _Json], required: Collection[str]) -> Iterator[str]:
    rows = [
        (f"`{name}`{' (required)' if name in required else ''}", _type(kind), kind.get("description", ""))
        for name, kind in fields.items()
    ]
    yield from _table((title, "type", "meaning"), rows)


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A table without its empty columns."""
    kept = [number for number, _ in enumerate(titles) if any(row[number] for row in rows)]
    for row in (titles, ["---"] * len(titles), *rows):
        cells = (" ".join(row[number].replace("|", "\\|").split()) for number in kept)
        yield f"| {' | '.join(cells)} |"
    yield ""


def _contents(holder: _Json) -> str:
    """The possible contents of a body, by media type."""
    return ", or ".join(
        f"`{media}`: {_type(one.get('schema', {}))}" for media, one in holder.get("content", {}).items()
    )


def _type(schema: _Json) -> str:
    """A schema in a few words, with links to named schemas."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return " or ".join(_type(one) for one in schema[key])
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    kind = schema.get("type", "any value")
    if isinstance(kind, list):
        return " or ".join(_type({**schema, "type": one}) for one in kind)
    if kind == "array":
        return f"array of {_type(schema.get('items', {}))}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_type(schema['additionalProperties'])}"
    return str(kind)
