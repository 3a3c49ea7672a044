"""The arguments of one tool call, after coercion: present, of the declared type, or absent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from mcpstated.protocol.errors import InvalidInput

if TYPE_CHECKING:
    from mcpstated.protocol.documents import Document


class Arguments:
    """A typed view of coerced arguments. The coercion vouches for the types; null is absent.

    Args:
        values: Only declared names, each with a value of its declared type.
        ignored: Names of given arguments that the tool does not know.
    """

    __slots__ = ("_values", "ignored")

    def __init__(self, values: Mapping[str, object], ignored: tuple[str, ...] = ()) -> None:
        self._values = values
        self.ignored = ignored

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def text(self, name: str) -> str:
        """Return a text argument that the tool cannot do without."""
        return cast(str, self._required(name))

    def document(self, name: str) -> Document:
        """Return an object argument that the tool cannot do without."""
        return cast("Document", self._required(name))

    def items(self, name: str) -> list[object]:
        """Return an array argument that the tool cannot do without."""
        return cast("list[object]", self._required(name))

    def find_text(self, name: str) -> str | None:
        """Return a text argument, or None if it is absent."""
        return cast("str | None", self._values.get(name))

    def find_integer(self, name: str) -> int | None:
        """Return an integer argument, or None if it is absent."""
        return cast("int | None", self._values.get(name))

    def find_number(self, name: str) -> float | None:
        """Return a number argument, or None if it is absent."""
        return cast("float | None", self._values.get(name))

    def flag(self, name: str) -> bool:
        """Return a boolean argument; absent means false."""
        return bool(self._values.get(name, False))

    def without(self, name: str) -> dict[str, object]:
        """Return the arguments that were given, but for one."""
        return {key: value for key, value in self._values.items() if key != name}

    def _required(self, name: str) -> object:
        if name not in self._values:
            raise InvalidInput(f"{name} is required.", field=name)
        return self._values[name]
