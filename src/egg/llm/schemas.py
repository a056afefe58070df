"""JSON schemas as endpoints want them that hold a model to the letter of one.

Strict endpoints take closed objects only: no property beyond those named, all of them required.
A reply that fits the closed form of a schema also fits the schema itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any


def has_open_objects(schema: Any) -> bool:
    """Is there an object whose keys the schema does not name? It has no closed form."""
    if isinstance(schema, Mapping):
        is_object = schema.get("type") == "object"
        opened = isinstance(schema.get("additionalProperties"), Mapping) or "patternProperties" in schema
        if is_object and (opened or not isinstance(schema.get("properties"), Mapping)):
            return True
        return any(has_open_objects(part) for part in schema.values())
    return isinstance(schema, list | tuple) and any(has_open_objects(part) for part in schema)


def closed(schema: Any) -> Any:
    """The closed form: every object with all its properties and nothing else; no defaults."""
    if isinstance(schema, list | tuple):
        return [closed(part) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    result = {}
    for key, part in schema.items():
        if key in ("properties", "$defs", "definitions") and isinstance(part, Mapping):
            result[key] = {name: closed(inner) for name, inner in part.items()}
        elif key in ("enum", "const", "examples"):
            result[key] = part
        elif key != "default":
            result[key] = closed(part)
    if schema.get("type") == "object" and isinstance(schema.get("properties"), Mapping):
        result["additionalProperties"] = False
        result["required"] = list(schema["properties"])
    return result


def schema_name(purpose: str) -> str:
    """A name for a schema, in the letters endpoints allow."""
    return re.sub(r"[^a-zA-Z0-9_-]+", "_", purpose)[:64] or "reply"
