"""`waybill schema`: the JSON Schemas of Waybill's own facets, and of manifests."""

from __future__ import annotations

from typing import Annotated

import msgspec

from waybill.facets.schema_files import find_facet_schema, read_facet_schemas
from waybill.transport import NotFoundError

from .. import completing, console
from ..arguments import JsonLines, argument


def schema(
    name: Annotated[
        str | None,
        argument(
            "NAME",
            "A name from the list, or a facet's _schemaURL.",
            autocompletion=completing.facet_schemas,
            show_default="list all",
        ),
    ] = None,
    *,
    as_json: JsonLines = False,
) -> None:
    """Print the JSON Schema of one of Waybill's facets, or of manifests, or list them.

    A facet's _schemaURL in events is urn:waybill:facet: and this name. The list has every version of each.
    That of the manifests of packages is for editors and other tools.

    Examples:
      waybill schema
      waybill schema WaybillDeltaFileRunFacet-1-0-0
      waybill schema package > dk.schema.json
    """
    if name is None:
        for known in (*read_facet_schemas(), completing.PACKAGE_SCHEMA):
            console.json({"name": known}) if as_json else console.line(known)
        return
    if name == completing.PACKAGE_SCHEMA:
        from waybill.pipelines import manifest_schema

        body: bytes | None = msgspec.json.encode(manifest_schema())
    else:
        body = find_facet_schema(name)
    if body is None:
        raise NotFoundError(f"there is no schema {name}; `waybill schema` lists them")
    if as_json:
        console.json(msgspec.json.decode(body))
    else:
        console.body(body.rstrip())
