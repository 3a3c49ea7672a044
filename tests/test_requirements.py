"""Holds the manifest of requirements and the tests together, both ways."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import pytest
from requirements import REQUIREMENTS

TESTS = Path(__file__).parent
MARK = "requirement"


@functools.cache
def used_ids() -> dict[str, list[str]]:
    """Return every id that a test names, with the tests that name it, read from the source alone."""
    found: dict[str, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                for requirement in _ids(node):
                    found.setdefault(requirement, []).append(f"{path.relative_to(TESTS)}::{node.name}")
    return found


def _ids(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    ids: list[str] = []
    for decorator in function.decorator_list:
        match decorator:
            case ast.Call(func=ast.Attribute(attr=attribute), args=arguments) if attribute == MARK:
                for argument in arguments:
                    assert isinstance(argument, ast.Constant), (
                        f"{function.name}: ids are written out as strings"
                    )
                    ids.append(str(argument.value))
    return ids


def test_every_id_that_a_test_names_is_in_the_manifest() -> None:
    """A test that proves an id nobody wrote down proves nothing that a reader can find."""
    unknown = {key: tests for key, tests in used_ids().items() if key not in REQUIREMENTS}
    assert unknown == {}


@pytest.mark.parametrize("requirement", sorted(REQUIREMENTS))
def test_every_id_of_the_manifest_is_proved_by_a_test(requirement: str) -> None:
    """A promise without a test is a hope."""
    assert used_ids().get(requirement), REQUIREMENTS[requirement].sentence


def test_every_requirement_says_where_it_comes_from() -> None:
    """A sentence without a source cannot be weighed when it gets in the way."""
    assert all(entry.sentence.endswith(".") and entry.source for entry in REQUIREMENTS.values())
