"""Documents: JSON text in, plain Python values out, with exact numbers, and their sizes.

A document is the JSON object behind a handle. Integers are exact, floats are IEEE doubles and finite,
of a repeated key the last one counts, key order is kept. Every function that takes a value from a
caller raises `InvalidInput`, whatever the value is; the others trust it. Below it is `validation`.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, NoReturn, TypeAlias

from mcpstated.protocol.equality import is_identical, same
from mcpstated.protocol.errors import InvalidInput, StateTooLarge
from mcpstated.protocol.validation import Unfit, depth_of, encode, utf8_length, weigh
from mcpstated.protocol.wording import name_type

if TYPE_CHECKING:
    from mcpstated.protocol.limits import Limits

__all__ = [
    "Document",
    "Json",
    "check_document",
    "dump",
    "is_identical",
    "measure",
    "parse",
    "raise_too_large",
    "same",
    "size_of",
]

Json: TypeAlias = "None | bool | int | float | str | list[Json] | dict[str, Json]"
Document: TypeAlias = "dict[str, Json]"

_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def parse(text: str | bytes, *, field: str, limits: Limits) -> Json:
    """Return the JSON value in `text`. The size limit is not looked at.

    Args:
        text: JSON, as text or UTF-8.
        field: The argument to name in the error.

    Raises:
        InvalidInput: Not JSON, not UTF-8, or a value that `measure` would refuse.
    """
    if not isinstance(text, str | bytes):
        raise InvalidInput(f"{field} must be JSON text, not {name_type(text)}.", field=field)
    try:
        if isinstance(text, bytes):
            text = text.decode()
        else:
            utf8_length(text)
        value: Json = _decode(text)
        depth_of(value, limits, is_parsed=True)
        if _ESCAPED_SURROGATE.search(text):
            weigh(value, limits)  # most such escapes come in pairs and are one character
    except Unfit as unfit:
        raise InvalidInput(f"{field} {unfit.text}.", field=field) from None
    except UnicodeError:
        raise InvalidInput(f"{field} is not valid UTF-8 text.", field=field) from None
    except json.JSONDecodeError as error:
        raise InvalidInput(
            f"{field} is not valid JSON: {error.msg} at line {error.lineno}, column {error.colno}.",
            field=field,
        ) from None
    except RecursionError:
        raise InvalidInput(f"{field} is nested deeper than {limits.max_depth} levels.", field=field) from None
    except ValueError:  # what is left is Python's own bound on the digits of an integer
        raise InvalidInput(
            f"{field} holds an integer of more than {limits.max_integer_digits} digits.", field=field
        ) from None
    return value


def dump(value: Json, *, field: str = "state") -> str:
    """Return `value` as compact JSON text, non-ASCII characters as they are.

    Raises:
        InvalidInput: It holds a lone surrogate, or is no JSON value. Details: `field`.
    """
    try:
        text = encode(value)
        utf8_length(text)
    except UnicodeEncodeError:
        raise InvalidInput(f"{field} holds a lone surrogate (half of a character).", field=field) from None
    except (TypeError, ValueError, RecursionError):
        raise InvalidInput(f"{field} is not a JSON value.", field=field) from None
    return text


def measure(value: object, *, field: str, limits: Limits) -> int:
    """Validate a Python value fully and return the UTF-8 bytes of its compact JSON.

    Raises:
        InvalidInput: It holds a non-JSON type, a key that is not text, a number that is not finite or
            has too many digits, a lone surrogate, or is nested too deep. The size limit is not looked at.
    """
    try:
        return weigh(value, limits).size_bytes
    except Unfit as unfit:
        raise InvalidInput(f"{field} {unfit.text}.", field=field) from None


def check_document(value: object, *, field: str = "state", limits: Limits) -> int:
    """Validate a whole document and return its size in bytes.

    Raises:
        InvalidInput: It is not an object, or `measure` refuses it.
        StateTooLarge: Details: `size_bytes`, `limit_bytes`.
    """
    if type(value) is not dict:
        raise InvalidInput(f"{field} must be a JSON object, not {name_type(value)}.", field=field)
    size_bytes = measure(value, field=field, limits=limits)
    if size_bytes > limits.max_state_bytes:
        raise_too_large(size_bytes, limits)
    return size_bytes


def raise_too_large(size_bytes: int, limits: Limits) -> NoReturn:
    """Raise the one error for a document above the size limit."""
    raise StateTooLarge(
        f"The state would have {size_bytes} bytes and at most {limits.max_state_bytes} are allowed. "
        "Remove or shorten something, or keep a part of it under a handle of its own.",
        size_bytes=size_bytes,
        limit_bytes=limits.max_state_bytes,
    )


def size_of(value: Json) -> int:
    """Return the UTF-8 bytes of the compact JSON of a value that was validated before."""
    return utf8_length(encode(value))


def _refuse_constant(name: str) -> NoReturn:
    raise Unfit("bad_value", f"holds {name}, and JSON has only finite numbers")


_decode = json.JSONDecoder(parse_constant=_refuse_constant).decode
