"""What a demo does when something did not happen."""

from __future__ import annotations


class DemoFailed(Exception):
    """Something that the demo shows did not happen. The message says what."""


def expect(condition: bool, claim: str) -> None:
    """Go on only if what is about to be said is true.

    Raises:
        DemoFailed: It is not.
    """
    if not condition:
        raise DemoFailed(f"This should hold and does not: {claim}.")
