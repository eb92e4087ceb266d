"""Show the routes on a page of its own making: no script, and nothing from another host."""

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

router = APIRouter(include_in_schema=False)

_HEAD = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>sotto-serve</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; max-width: 52rem; margin: 2rem auto; padding: 0 1rem }
code { font-family: ui-monospace, monospace } table { border-collapse: collapse; width: 100% }
td, th { text-align: left; vertical-align: top; padding: .2rem .8rem .2rem 0 }
h2 { border-top: 1px solid #bbb; padding-top: 1rem; font-size: 1.1rem }
</style>
"""

# Any: an OpenAPI document is JSON of many shapes.
_Json = Mapping[str, Any]


@router.get("/docs")
async def page(request: Request) -> HTMLResponse:
    """Return the page."""
    described = request.app.openapi()
    return HTMLResponse("".join(_page(described)))


def _page(described: _Json) -> Iterator[str]:
    yield _HEAD
    yield f"<h1>{escape(described['info']['title'])}</h1>"
    yield f"<p>{escape(described['info']['description'])}</p>"
    yield '<p>The same for programs: <a href="openapi.json">openapi.json</a>.</p>'
    schemas = described.get("components", {}).get("schemas", {})
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            yield f"<h2><code>{method.upper()} {escape(path)}</code></h2>"
            yield f"<p>{escape(operation.get('description', ''))}"
            yield " Needs a bearer token.</p>" if "security" in operation else "</p>"
            yield from _fields("asks", _schema_of(operation.get("requestBody", {}), schemas))
            answer = operation.get("responses", {}).get("200", {})
            yield from _fields("gives", _schema_of(answer, schemas))


def _schema_of(body: _Json, schemas: _Json) -> _Json:
    schema = body.get("content", {}).get("application/json", {}).get("schema", {})
    name = schema.get("$ref", "").rpartition("/")[2]
    found: _Json = schemas.get(name, schema)
    return found


def _fields(what: str, schema: _Json) -> Iterator[str]:
    fields = schema.get("properties", {})
    if not fields:
        return
    required = schema.get("required", [])
    yield f"<table><tr><th>{what}</th><th></th><th></th></tr>"
    for name, field in fields.items():
        presence = "required" if name in required else f"default {field.get('default')}"
        yield f"<tr><td><code>{escape(name)}</code></td><td>{escape(_kind(field))}, "
        yield f"{escape(presence)}</td><td>{escape(field.get('description', ''))}</td></tr>"
    yield "</table>"


def _kind(field: _Json) -> str:
    if "anyOf" in field:
        return " or ".join(_kind(one) for one in field["anyOf"])
    if field.get("type") == "array":
        return f"list of {_kind(field['items'])}"
    return str(field.get("type") or field.get("$ref", "").rpartition("/")[2])
