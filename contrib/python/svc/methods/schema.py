"""Builders of JSON Schema.

    from svc.methods import schema as s
    s.object(query=s.string(min_length=1), limit=s.optional(s.integer(minimum=1), 10))

Every builder takes ``description``, ``default``, ``enum`` and ``extra``; what is ``None`` counts as not given. ``extra``
has further JSON Schema keywords, under their own names; what is given beside it wins. A schema is a ``dict``, and one
written by hand goes wherever a built one does.
"""

from __future__ import annotations

import math
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

__all__ = ["array", "boolean", "integer", "null", "number", "object", "optional", "string"]

Number = Union[int, float]

# `object` is the name of a builder below.
_Anything = Any


class Schema(Dict[str, Any]):
    """A built schema, distinguishable from other dicts."""


class NotRequired:
    """An optional property of an object."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.schema = schema


def string(
    *,
    format: Optional[str] = None,
    min_length: Optional[int] = None,
    max_length: Optional[int] = None,
    pattern: Optional[str] = None,
    description: Optional[str] = None,
    default: Any = None,
    enum: Optional[Sequence[Any]] = None,
    extra: Optional[Mapping[str, Any]] = None,
) -> Schema:
    """A string."""
    keywords = {
        "format": _text("format", format),
        "minLength": _count("min_length", min_length),
        "maxLength": _count("max_length", max_length),
        "pattern": _text("pattern", pattern),
    }
    return _built("string", keywords, description, default, enum, extra)


def integer(
    *,
    minimum: Optional[Number] = None,
    maximum: Optional[Number] = None,
    description: Optional[str] = None,
    default: Any = None,
    enum: Optional[Sequence[Any]] = None,
    extra: Optional[Mapping[str, Any]] = None,
) -> Schema:
    """An integer."""
    keywords = {"minimum": _number("minimum", minimum), "maximum": _number("maximum", maximum)}
    return _built("integer", keywords, description, default, enum, extra)


def number(
    *,
    minimum: Optional[Number] = None,
    maximum: Optional[Number] = None,
    description: Optional[str] = None,
    default: Any = None,
    enum: Optional[Sequence[Any]] = None,
    extra: Optional[Mapping[str, Any]] = None,
) -> Schema:
    """A number."""
    keywords = {"minimum": _number("minimum", minimum), "maximum": _number("maximum", maximum)}
    return _built("number", keywords, description, default, enum, extra)


def boolean(
    *,
    description: Optional[str] = None,
    default: Any = None,
    enum: Optional[Sequence[Any]] = None,
    extra: Optional[Mapping[str, Any]] = None,
) -> Schema:
    """A boolean."""
    return _built("boolean", {}, description, default, enum, extra)


def null(
    *,
    description: Optional[str] = None,
    default: Any = None,
    enum: Optional[Sequence[Any]] = None,
    extra: Optional[Mapping[str, Any]] = None,
) -> Schema:
    """Null."""
    return _built("null", {}, description, default, enum, extra)


def array(
    items: Mapping[str, Any],
    *,
    min_items: Optional[int] = None,
    max_items: Optional[int] = None,
    description: Optional[str] = None,
    default: Any = None,
    enum: Optional[Sequence[Any]] = None,
    extra: Optional[Mapping[str, Any]] = None,
) -> Schema:
    """An array whose items have one schema."""
    keywords = {
        "items": checked("items", items),
        "minItems": _count("min_items", min_items),
        "maxItems": _count("max_items", max_items),
    }
    return _built("array", keywords, description, default, enum, extra)


def object(
    *,
    additional_properties: Union[None, bool, Mapping[str, Any]] = None,
    description: Any = None,
    default: Any = None,
    enum: Any = None,
    extra: Any = None,
    **properties: Union[Mapping[str, Any], NotRequired],
) -> Schema:
    """An object with properties, each required unless it is ``optional``. Others are refused by default.

    A property may be called ``description``, ``default``, ``enum`` or ``extra``: a schema there is that property's.
    """
    if _is_property(description) or isinstance(description, Mapping):
        properties, description = {"description": description, **properties}, None
    if _is_property(enum) or isinstance(enum, Mapping):
        properties, enum = {"enum": enum, **properties}, None
    # These two may be plain dicts, so only a built schema is a property.
    if _is_property(default):
        properties, default = {"default": default, **properties}, None
    if _is_property(extra):
        properties, extra = {"extra": extra, **properties}, None
    shapes: Dict[str, _Anything] = {}
    required: List[str] = []
    for name, given in properties.items():
        if isinstance(given, NotRequired):
            shapes[name] = given.schema
        elif isinstance(given, Mapping):
            shapes[name] = given
            required.append(name)
        else:
            raise TypeError(f"`{name}` is no keyword of an object, and as a property it needs a schema, not {given!r}")
    keywords: Dict[str, _Anything] = {
        "properties": shapes or None,
        "required": sorted(required) or None,
        "additionalProperties": _additional(additional_properties),
    }
    otherwise = {"properties": {}, "additionalProperties": False}
    return _built("object", keywords, description, default, enum, extra, otherwise)


def optional(
    schema: Mapping[str, Any],
    default: Any = None,
    *,
    description: Optional[str] = None,
    enum: Optional[Sequence[Any]] = None,
    extra: Optional[Mapping[str, Any]] = None,
) -> NotRequired:
    """Marks a property as optional, with the default it has when missing."""
    return NotRequired(_joined(checked("schema", schema), {}, description, default, enum, extra))


def checked(field: str, schema: _Anything) -> Mapping[str, Any]:
    """Returns the schema, built or written by hand. Raises ``TypeError`` for anything else."""
    if isinstance(schema, NotRequired):
        raise TypeError(f"`{field}` cannot be optional: only a property of an object can")
    if not isinstance(schema, Mapping):
        raise TypeError(f"`{field}` is a schema, not {schema!r}")
    return schema


def _built(
    kind: str,
    keywords: Mapping[str, Any],
    description: Optional[str],
    default: Any,
    enum: Optional[Sequence[Any]],
    extra: Optional[Mapping[str, Any]],
    otherwise: Optional[Mapping[str, Any]] = None,
) -> Schema:
    return _joined(otherwise or {}, {"type": kind, **keywords}, description, default, enum, extra)


def _joined(
    otherwise: Mapping[str, Any],
    keywords: Mapping[str, Any],
    description: Optional[str],
    default: Any,
    enum: Optional[Sequence[Any]],
    extra: Optional[Mapping[str, Any]],
) -> Schema:
    """Merges keywords: given ones override ``extra``, which overrides the defaults."""
    if extra is not None and not (isinstance(extra, Mapping) and all(isinstance(key, str) for key in extra)):
        raise TypeError(f"`extra` is a dict of JSON Schema keywords, not {extra!r}")
    if enum is not None and (isinstance(enum, str) or not isinstance(enum, Sequence)):
        raise TypeError(f"`enum` is a list, not {enum!r}")
    given = {
        **keywords,
        "description": _text("description", description),
        "default": default,
        "enum": None if enum is None else list(enum),
    }
    present = {keyword: value for keyword, value in given.items() if value is not None}
    return Schema({**otherwise, **(extra or {}), **present})


def _is_property(value: _Anything) -> bool:
    return isinstance(value, (Schema, NotRequired))


def _text(field: str, value: _Anything) -> Optional[str]:
    if value is not None and not isinstance(value, str):
        raise TypeError(f"`{field}` is a string, not {value!r}")
    return value


def _count(field: str, value: _Anything) -> Optional[int]:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise TypeError(f"`{field}` is a whole number from 0, not {value!r}")
    return value


def _number(field: str, value: _Anything) -> Optional[Number]:
    if value is None:
        return None
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value):
        raise TypeError(f"`{field}` is a number, not {value!r}")
    return value


def _additional(value: _Anything) -> Union[None, bool, Mapping[str, Any]]:
    if value is None or isinstance(value, bool):
        return value
    return checked("additional_properties", value)
