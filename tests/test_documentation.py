"""What a user may type, set, meet or hit is documented, and what is documented exists."""

from __future__ import annotations

import dataclasses
import json
import re
import tomllib
from pathlib import Path
from urllib.parse import unquote

import click
import pytest

from mcpstated.cli.exit_codes import ExitCode
from mcpstated.cli.main import COMMANDS, program
from mcpstated.daemon.backends.schema import SCHEMA_VERSION
from mcpstated.protocol.errors import ERRORS
from mcpstated.protocol.limits import Limits
from mcpstated.protocol.messages import (
    FROM_CLIENT,
    FROM_DAEMON,
    GOODBYE_REASONS,
    PROTOCOL_MAX,
    PROTOCOL_MIN,
)
from mcpstated.protocol.settings import ENVIRONMENT, MCPSTATE_NAMES
from mcpstated.surface.declaration import TOOLS
from support.layout import ROOT

DOCS = ROOT / "docs"
PAGES = (
    *sorted(DOCS.rglob("*.md")),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    ROOT / "examples" / "README.md",
    ROOT / "packaging" / "README.md",
)
EXAMPLES = sorted((ROOT / "examples" / "clients").iterdir())


def text_of(name: str) -> str:
    """Return a page of docs/."""
    return (DOCS / name).read_text(encoding="utf-8")


def section_of(command: str) -> str:
    """Return what docs/cli.md says of one command."""
    return text_of("cli.md").partition(f"## `mcpstated {command}`\n")[2].partition("\n## ")[0]


def options_of(command: click.Command) -> list[str]:
    """Return every spelling of every option that is not hidden."""
    found: list[str] = []
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            found += [*parameter.opts, *parameter.secondary_opts]
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_has_its_place_in_the_manual(name: str) -> None:
    """A command that nobody can read about is used by nobody."""
    command = program.get_command(click.Context(program), name)
    assert command is not None
    section = section_of(name)
    assert section, f"docs/cli.md has no section for {name}"
    missing = [option for option in options_of(command) if f"`{option}" not in section]
    assert missing == []
    arguments = [
        parameter.human_readable_name for parameter in command.params if isinstance(parameter, click.Argument)
    ]
    assert [name for name in arguments if name not in section and name != "SHELL"] == []


def test_every_exit_code_is_documented() -> None:
    """Scripts rely on them."""
    assert [code for code in ExitCode if f"| {int(code)} |" not in text_of("cli.md")] == []


def test_the_code_of_every_error_is_documented() -> None:
    """A caller repairs a call by the code and the fields."""
    assert [error.code for error in ERRORS if f"| `{error.code}` |" not in text_of("tools.md")] == []


def test_every_field_of_an_error_is_documented_beside_its_code() -> None:
    """The docstrings name the details that each error carries."""
    missing = []
    for error in ERRORS:
        line = next(
            line for line in text_of("tools.md").splitlines() if line.startswith(f"| `{error.code}` |")
        )
        details = (error.__doc__ or "").partition("Details:")[2]
        missing += [(error.code, name) for name in re.findall(r"`(\w+)`", details) if f"`{name}`" not in line]
    assert missing == []


def test_every_tool_and_parameter_is_documented() -> None:
    """The table of the tools is what an author of prompts reads."""
    missing = []
    for tool in TOOLS:
        line = next(
            line for line in text_of("tools.md").splitlines() if line.startswith(f"| `{tool.name}` |")
        )
        missing += [(tool.name, name) for name in tool.parameters["properties"] if f"`{name}`" not in line]
    assert missing == []


def test_every_environment_variable_is_documented() -> None:
    """A setting that only the source knows is a trap."""
    page = text_of("configuration.md")
    assert [name for name in (*ENVIRONMENT, *MCPSTATE_NAMES) if f"`{name}`" not in page] == []


def test_every_variable_that_is_documented_is_understood() -> None:
    """A page must not promise a setting that the daemon would report as unknown."""
    named = {
        found
        for page in PAGES
        for found in re.findall(r"\bMCPSTATED?_[A-Z_]+[A-Z]\b", page.read_text("utf-8"))
    }
    assert named - {*ENVIRONMENT, *MCPSTATE_NAMES} == set()


def test_every_limit_is_documented_with_its_default() -> None:
    """Whoever meets a limit looks up what it is and where to raise it."""
    lines = text_of("configuration.md").splitlines()
    wanted = [
        f"| `{field.name}` | {_shown(getattr(Limits(), field.name))} |"
        for field in dataclasses.fields(Limits)
    ]
    assert [row for row in wanted if not any(line.startswith(row) for line in lines)] == []


def _shown(value: float) -> str:
    return f"{value:,.0f}"


def test_every_message_and_goodbye_of_the_wire_is_documented() -> None:
    """The page is the only description of the wire beside the code."""
    page = text_of("protocol.md")
    names = [*FROM_CLIENT, *FROM_DAEMON, *GOODBYE_REASONS]
    assert [name for name in names if f"| `{name}` |" not in page] == []


def test_every_version_of_the_wire_and_of_the_schema_is_documented() -> None:
    """Whoever upgrades, or goes back, looks up what changed and whether both sides fit."""
    page = text_of("upgrading.md")
    wanted = [f"| wire | {version} |" for version in range(PROTOCOL_MIN, PROTOCOL_MAX + 1)]
    wanted += [f"| schema | {version} |" for version in range(1, SCHEMA_VERSION + 1)]
    assert [row for row in wanted if row not in page] == []
    assert f"state.db.before-v{SCHEMA_VERSION}" in page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_into_the_tree_leads_somewhere(page: Path) -> None:
    """Files move; pages must follow."""
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        path, _, anchor = unquote(target).partition("#")
        if re.match(r"[a-z]+:", path):
            continue
        file = (page.parent / path) if path else page
        if not file.exists() or (anchor and anchor not in _anchors(file)):
            broken.append(target)
    assert broken == []


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def test_the_source_files_that_pages_name_exist() -> None:
    """The map of the code is worth something only while it is right."""
    packages = "protocol|client|shim|surface|daemon|cli|tests|benchmarks"
    named = {
        found
        for page in PAGES
        for found in re.findall(rf"`((?:{packages})/[\w/.-]*)`", page.read_text(encoding="utf-8"))
    }
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_decisions_are_numbered_without_gaps() -> None:
    """A gap would be a decision that was taken back in silence."""
    numbers = [int(path.name[:4]) for path in sorted((DOCS / "adr").glob("*.md"))]
    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_every_example_configuration_starts_the_shim(example: Path) -> None:
    """People paste these; a stray comma would silently disable all their servers."""
    text = example.read_text(encoding="utf-8")
    if example.suffix == ".json":
        text = json.dumps(json.loads(text))
    elif example.suffix == ".toml":
        text = json.dumps(tomllib.loads(text))
    words = re.findall(r"/ABSOLUTE/PATH/mcpstated|\bshim\b", text)
    assert words == ["/ABSOLUTE/PATH/mcpstated", "shim"]
    assert f"clients/{example.name}" in (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
