"""Lenient in, strict inside: the arguments that models send become the arguments that tools declare.

One level of JSON text is decoded where the schema says object or array, never below. Numbers and
booleans may come as text. Null means absent. Whatever is left over is either ignored, and named in
the reply, or refused because it looks like a misspelt parameter. Text inside a state is not touched.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mcpstated.protocol import documents
from mcpstated.protocol.errors import InvalidInput
from mcpstated.protocol.wording import json_type, list_keys, printable, quote
from mcpstated.surface.arguments import Arguments
from mcpstated.surface.near_miss import find_missed

if TYPE_CHECKING:
    from mcpstated.protocol.limits import Limits

Schema = Mapping[str, Any]

_INTEGER_TEXT = re.compile(r"-?[0-9]{1,18}(\.0+)?")
_NUMBER_TEXT = re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,18})?([eE][+-]?[0-9]{1,3})?")
_EXACT_FLOAT = 2.0**53
"""Up to here every integer is a float of its own."""
_SHOWN_BELOW = 10**18
_LEVELS_AROUND = 4
"""What can be around a part of a document: the arguments, the operations, one operation, its mapping."""
_MAX_IGNORED = 20
_MAX_NAME_CHARS = 60


def around(limits: Limits) -> Limits:
    """Return the limits for JSON text that has documents, or parts of them, inside: a few levels more."""
    return replace(limits, max_depth=limits.max_depth + _LEVELS_AROUND)


class Coercion:
    """Coerces the arguments of one tool.

    Args:
        schema: The tool's input schema: `type`, `properties` and `required` are what is read.
        limits: Bounds for JSON that comes as text.
    """

    def __init__(self, schema: Schema, limits: Limits) -> None:
        self._limits = limits
        self._properties: Mapping[str, Schema] = schema["properties"]
        self._required: tuple[str, ...] = tuple(schema.get("required", ()))

    def __call__(self, given: Mapping[str, object]) -> Arguments:
        """Return `given` as the tool declares it.

        Raises:
            InvalidInput: An argument has the wrong type, a required one is absent, or an unknown one
                is a near miss of a parameter that was not given.
        """
        values: dict[str, object] = {}
        unknown: list[str] = []
        for name, value in given.items():
            schema = self._properties.get(name)
            if schema is None:
                unknown.append(name)
            elif value is not None:
                values[name] = _COERCERS[schema["type"]](name, value, schema, self._limits)
        ignored = self._examine(unknown, given) if unknown else ()
        for name in self._required:
            if name not in values:
                beside = f" {list_keys(unknown)} is not known here." if unknown else ""
                raise InvalidInput(f"{name} is required.{beside}", field=name)
        return Arguments(values, ignored)

    def _examine(self, unknown: list[str], given: Mapping[str, object]) -> tuple[str, ...]:
        absent = [name for name in self._properties if given.get(name) is None]
        for name in unknown:
            if given[name] is not None and (missed := find_missed(name, absent)) is not None:
                raise InvalidInput(
                    f"There is no parameter {quote(name)}; did you mean {quote(missed)}? "
                    "Nothing was done. Call again with the right name, or leave it out.",
                    field=missed,
                )
        return tuple(sorted(printable(name, _MAX_NAME_CHARS) for name in unknown)[:_MAX_IGNORED])


def _text(name: str, value: object, _schema: Schema, _limits: Limits) -> str:
    if isinstance(value, str):
        return value
    raise _wrong(name, "text", value)


def _integer(name: str, value: object, _schema: Schema, _limits: Limits) -> int:
    if type(value) is int:
        return value
    if type(value) is float and value.is_integer() and abs(value) <= _EXACT_FLOAT:
        return int(value)
    if isinstance(value, str) and _INTEGER_TEXT.fullmatch(value.strip()):
        return int(value.strip().partition(".")[0])
    raise _wrong(name, "a whole number", value)


def _number(name: str, value: object, _schema: Schema, _limits: Limits) -> float:
    if type(value) is int or type(value) is float:
        return value
    if isinstance(value, str) and _NUMBER_TEXT.fullmatch(value.strip()):
        return float(value)
    raise _wrong(name, "a number", value)


def _boolean(name: str, value: object, _schema: Schema, _limits: Limits) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    raise _wrong(name, "true or false", value)


def _object(name: str, value: object, _schema: Schema, limits: Limits) -> dict[str, Any]:
    decoded = documents.parse(value, field=name, limits=limits) if isinstance(value, str) else value
    if isinstance(decoded, dict):
        return decoded
    raise _wrong(name, "a JSON object", value)


def _array(name: str, value: object, schema: Schema, limits: Limits) -> list[Any]:
    if isinstance(value, str):
        decoded = documents.parse(value, field=name, limits=around(limits))
    elif isinstance(value, list) and schema["items"].get("type") == "object":
        decoded = [
            documents.parse(item, field=name, limits=around(limits)) if isinstance(item, str) else item
            for item in value
        ]
    else:
        decoded = value  # type: ignore[assignment]  # checked below
    if isinstance(decoded, list):
        return decoded
    raise _wrong(name, "a JSON array", value)


def _wrong(name: str, wanted: str, value: object) -> InvalidInput:
    return InvalidInput(f"{name} must be {wanted}, got {_describe(value)}.", field=name)


def _describe(value: object) -> str:
    if isinstance(value, str):
        return f"the text {quote(value)}"
    if isinstance(value, bool | float) or (isinstance(value, int) and abs(value) < _SHOWN_BELOW):
        return f"the {json_type(value)} {str(value).lower()}"
    return json_type(value)


_COERCERS: dict[str, Callable[[str, object, Schema, Limits], object]] = {
    "string": _text,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "object": _object,
    "array": _array,
}
