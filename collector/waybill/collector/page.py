"""The OpenAPI description as a page to be read: plain HTML, which asks nobody for anything."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import escape
from typing import Any, Final

HTML: Final = "text/html; charset=utf-8"

_STYLE: Final = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; }
code, pre { background: #8882; border-radius: 3px; font-size: 0.9em; padding: 0 0.2em; }
pre { overflow-x: auto; padding: 0.5em; }
td, th { padding: 0.1rem 1rem 0.1rem 0; text-align: left; vertical-align: top; }
"""


def page(description: dict[str, Any]) -> str:
    """Make the page.

    Args:
        description: see `waybill.collector.openapi.description`.
    """
    return "\n".join(_lines(description)) + "\n"


def _lines(description: dict[str, Any]) -> Iterator[str]:
    info = description["info"]
    yield '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">'
    yield f"<title>{escape(info['title'])}</title>\n<style>{_STYLE}</style>"
    yield f"<h1>{escape(info['title'])} {escape(info['version'])}</h1>"
    yield f'<p>{escape(info["description"])} For programs: <a href="/openapi.json">openapi.json</a>.</p>'
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            yield from _operation(f"{method.upper()} {path}", operation)
    yield "<h2>Schemas</h2>"
    for name, schema in description["components"]["schemas"].items():
        yield f'<h3 id="{escape(name)}">{escape(name)}</h3>'
        yield f"<pre>{escape(json.dumps(schema, indent=2))}</pre>"


def _operation(title: str, operation: dict[str, Any]) -> Iterator[str]:
    yield f"<h2><code>{escape(title)}</code></h2>\n<p>{escape(operation['summary'])}.</p>"
    body = operation.get("requestBody")
    if body:
        yield f"<p>Takes {_content(body)}.</p>"
    if operation.get("parameters"):
        yield "<table><tr><th>parameter</th><th>is</th></tr>"
        for one in operation["parameters"]:
            needed = ", required" if one["required"] else ""
            is_ = f"<code>{escape(json.dumps(one['schema']))}</code>{needed}"
            yield f"<tr><td><code>{escape(one['name'])}</code></td><td>{is_}</td></tr>"
        yield "</table>"
    yield "<table><tr><th>status</th><th>answer</th></tr>"
    for status, answer in operation["responses"].items():
        says = answer.get("description", 'a <a href="#Problem">problem</a>')
        yield f"<tr><td>{escape(status)}</td><td>{says} {_content(answer)}</td></tr>"
    yield "</table>"


def _content(holder: dict[str, Any]) -> str:
    return " or ".join(
        f"<code>{escape(media)}</code> {_named(content['schema'])}"
        for media, content in holder.get("content", {}).items()
    )


def _named(schema: dict[str, Any]) -> str:
    if schema.get("type") == "array":
        return f"an array of {_named(schema['items'])}"
    name = schema.get("$ref", "").rpartition("/")[2]
    return f'<a href="#{escape(name)}">{escape(name)}</a>' if name else ""
