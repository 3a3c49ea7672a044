"""Which package may import which: every forbidden edge with its reason, and what the shim's start loads."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgpack
import pytest

from support.layout import ROOT, SOURCES, lay_out

LAUNCH = ("children", "detach", "interpreter", "launch", "link", "locks", "service", "spawn")
"""Modules of the root package that the shim loads."""
LAUNCH_MODULES = tuple(f"mcpstated.{name}" for name in LAUNCH)
LIBRARY_MODULES = tuple(
    f"mcpstated.{path.stem}"
    for path in sorted((ROOT / "client").glob("*.py"))
    if path.stem not in ("__init__", *LAUNCH)
)
"""Modules of the root package that only programs with trio load."""
HEAVY = ("asyncio", "dataclasses", "inspect", "json", "logging", "pathlib", "re", "shutil", "subprocess")
"""Modules of the standard library that cost more than the whole shim; `json` takes part in no start."""
HEAVY += ("tempfile", "threading", "typing")
MCP_LIBRARIES = ("anyio", "fastmcp", "mcp", "mcp_types", "pydantic")
THIRD_PARTY = ("apsw", "click", "fastmcp", "mcp", "platformdirs", "pydantic", "rich", "trio")
MAINTENANCE = (
    *(
        f"mcpstated.cli.commands.{name}"
        for name in ("backup", "export", "import_handles", "restore", "verify")
    ),
    "mcpstated.cli.refusals",
)
"""Modules of the command line that work on the files, in a process of their own."""


@dataclass(frozen=True, slots=True)
class Forbidden:
    """No module at or below `importers` may import a module at or below `imported`."""

    importers: tuple[str, ...]
    imported: tuple[str, ...]
    reason: str
    but: tuple[str, ...] = ()
    """Importing modules that may."""


UPPER = ("mcpstated.daemon", "mcpstated.surface", "mcpstated.shim", "mcpstated.cli")
FORBIDDEN = (
    Forbidden(
        ("mcpstated.protocol",),
        (*UPPER, *LAUNCH_MODULES, *LIBRARY_MODULES),
        "the protocol lies below everything, so that every side can use it",
    ),
    Forbidden(
        ("mcpstated.protocol",),
        (*THIRD_PARTY, "asyncio", "selectors", "subprocess", "threading", "time"),
        "the protocol does no I/O and has no clock: whoever drives it does",
    ),
    Forbidden(
        ("mcpstated.surface",),
        ("mcpstated.daemon", "mcpstated.shim", "mcpstated.cli", *LAUNCH_MODULES, *LIBRARY_MODULES),
        "the surface works over any store, also one without a daemon",
    ),
    Forbidden(
        ("mcpstated.surface",), ("apsw", "click", "rich", "trio"), "the surface knows no storage and no loop"
    ),
    Forbidden(
        ("mcpstated.daemon",),
        ("mcpstated.shim", "mcpstated.cli", *LAUNCH_MODULES, *LIBRARY_MODULES),
        "the daemon serves the others and needs none of them",
    ),
    Forbidden(("mcpstated.daemon",), ("click", "rich"), "the daemon has no terminal"),
    Forbidden(
        ("mcpstated.daemon", "mcpstated.surface"),
        MCP_LIBRARIES,
        "they take longer to load than everything else, and the daemon answers before they are there",
        but=("mcpstated.daemon.loops", "mcpstated.surface.gate", "mcpstated.surface.server"),
    ),
    Forbidden(
        ("mcpstated.daemon", "mcpstated.surface"),
        ("mcpstated.daemon.loops", "mcpstated.surface.gate", "mcpstated.surface.server"),
        "these load the MCP libraries, which happens in one place and beside the daemon's work",
        but=(
            "mcpstated.daemon.mcp_library",
            "mcpstated.daemon.loops",
            "mcpstated.surface.gate",
            "mcpstated.surface.server",
        ),
    ),
    Forbidden(
        ("mcpstated.daemon",),
        ("mcpstated.daemon.backends.sqlite",),
        "one file builds the objects; all others take the backend as an interface",
        but=("mcpstated.daemon.main", "mcpstated.daemon.testing"),
    ),
    Forbidden(
        ("mcpstated.shim",),
        ("mcpstated.daemon", "mcpstated.surface", "mcpstated.cli", *LIBRARY_MODULES),
        "the shim is a tube: it knows the wire and how a daemon is found",
    ),
    Forbidden(
        ("mcpstated.shim", *LAUNCH_MODULES),
        THIRD_PARTY,
        "each of them costs more than the shim's whole start",
    ),
    Forbidden(
        ("mcpstated.shim", *LAUNCH_MODULES),
        HEAVY,
        "each of them costs a good part of the shim's start",
        but=("mcpstated.shim.skipped", "mcpstated.shim.standin"),  # loaded only when something went wrong
    ),
    Forbidden(
        LAUNCH_MODULES,
        (*UPPER, *LIBRARY_MODULES),
        "finding a daemon must not load what runs in it, or what talks to it",
    ),
    Forbidden(
        LIBRARY_MODULES,
        (*UPPER, "apsw", "click", "fastmcp", "mcp", "rich"),
        "the library is installed into other people's servers and knows only the wire",
    ),
    Forbidden(
        ("mcpstated.cli",),
        ("mcpstated.daemon",),
        "the command line speaks to the daemon over the wire; one command becomes it",
        but=("mcpstated.cli.commands.daemon", *MAINTENANCE),
    ),
    Forbidden(
        MAINTENANCE,
        ("mcpstated.daemon.engine", "mcpstated.daemon.main", "mcpstated.daemon.backends"),
        "work on a store's files goes through the daemon's package for that",
        but=("mcpstated.cli.refusals",),
    ),
    Forbidden(("mcpstated.cli",), ("mcpstated.surface", "apsw", "fastmcp"), "these run in the daemon"),
    Forbidden(
        ("mcpstated.cli",),
        ("mcp",),
        "only the demonstration is an MCP client",
        but=("mcpstated.cli.demo",),
    ),
)


@dataclass(frozen=True, slots=True)
class Import:
    """One import statement."""

    importer: str
    imported: str
    place: str
    is_for_types_only: bool


@functools.cache
def imports() -> tuple[Import, ...]:
    """Return every import of the packages, those inside functions included."""
    return tuple(_read_imports())


def _read_imports() -> Iterator[Import]:
    for package, folder in SOURCES.items():
        inner = {name for name in SOURCES.values() if name != folder}
        for path in sorted(folder.rglob("*.py")):
            if any(parent in inner for parent in path.parents):
                continue
            parts = path.relative_to(folder).with_suffix("").parts
            module = ".".join([package, *(part for part in parts if part != "__init__")])
            tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
            typed = {
                id(node) for block in ast.walk(tree) if _is_type_block(block) for node in ast.walk(block)
            }
            for node in ast.walk(tree):
                for imported in _imported(node):
                    place = f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"
                    yield Import(module, imported, place, id(node) in typed)


def _is_type_block(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _imported(node: ast.AST) -> list[str]:
    match node:
        case ast.Import(names=names):
            return [alias.name for alias in names]
        case ast.ImportFrom(module=str(module), names=names, level=0):
            return [module, *(f"{module}.{alias.name}" for alias in names)]
        case ast.ImportFrom():
            raise AssertionError("relative imports hide their direction")
    return []


def _lies_below(module: str, tops: tuple[str, ...]) -> bool:
    return any(module == top or module.startswith(f"{top}.") for top in tops)


@pytest.mark.parametrize("edge", FORBIDDEN, ids=lambda edge: f"{edge.importers[0]}-{edge.imported[0]}")
def test_no_package_imports_what_lies_above_it(edge: Forbidden) -> None:
    """Directions that are only written down are soon not kept; each edge says why it is forbidden."""
    broken = [
        f"{found.place}: {found.importer} imports {found.imported}"
        for found in imports()
        if _lies_below(found.importer, edge.importers)
        and _lies_below(found.imported, edge.imported)
        and not _lies_below(found.importer, edge.but)
        # A type from outside costs nothing at run time; one of ours still is a dependency.
        and not (found.is_for_types_only and not found.imported.startswith("mcpstated"))
    ]
    assert broken == [], edge.reason


def test_every_forbidden_edge_names_modules_that_exist() -> None:
    """A misspelled name in the table would forbid nothing."""
    known = {found.importer for found in imports()}
    named = {name for edge in FORBIDDEN for name in (*edge.importers, *edge.imported, *edge.but)}
    ours = {name for name in named if name.startswith("mcpstated")}
    assert {name for name in ours if not any(_lies_below(module, (name,)) for module in known)} == set()


@pytest.mark.requirement("P8")
def test_the_start_of_a_shim_loads_nothing_heavy(tmp_path: Path) -> None:
    """A client waits for the shim in every conversation; what its entry imports decides how long."""
    layout = lay_out(tmp_path)
    libraries = Path(msgpack.__file__).parent.parent
    program = (
        f"import sys; sys.path[:0] = [{str(layout)!r}, {str(libraries)!r}];"
        "import mcpstated.cli.entry, mcpstated.shim.signals, mcpstated.shim.main;"
        "print(*sys.modules)"
    )
    # -S: site and the import hook of an editable install load modules of their own.
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = set(done.stdout.split())
    assert "mcpstated.shim.relay" in loaded
    assert loaded & {*HEAVY, *THIRD_PARTY} == set()


@pytest.mark.requirement("P2")
def test_a_daemon_serves_before_the_mcp_libraries_are_loaded() -> None:
    """They take seconds on a busy machine, and every call that a dead daemon left waits for the next one."""
    program = "import sys, mcpstated.daemon.main, mcpstated.cli.commands.daemon; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert {"mcpstated", "apsw", "trio"} <= loaded
    assert loaded & {*MCP_LIBRARIES, "rich", "httpx"} == set()
