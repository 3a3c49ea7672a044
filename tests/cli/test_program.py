"""The command line around its commands: help, usage errors, exit codes, and what needs no daemon."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

import mcpstated
from mcpstated.cli.exit_codes import ExitCode
from mcpstated.cli.failures import failure, problem_of
from mcpstated.cli.main import COMMANDS, MODULES, program
from mcpstated.launch import DaemonNotRunning, VersionSkew
from mcpstated.protocol.errors import ERRORS, DaemonUnavailable, InvalidInput
from support.command_line import CommandLine


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> CommandLine:
    return CommandLine(capsys, "--data-dir", str(tmp_path / "store"))


def test_no_arguments_print_the_help(run: CommandLine) -> None:
    """Whoever types the name alone wants to know what there is."""
    outcome = run()

    assert outcome.exit_code == 0
    assert "Usage: mcpstated" in outcome.out
    assert all(name in outcome.out for name in COMMANDS)


def test_the_version_is_the_package_s(run: CommandLine) -> None:
    """A report of a fault begins with it."""
    assert run("--version").out == f"mcpstated, version {mcpstated.__version__}\n"


def test_every_command_has_a_file_of_its_name() -> None:
    """The table of the help, the modules and the folder say the same, so that a reader finds each part."""
    folder = Path(str(importlib.import_module("mcpstated.cli.commands").__file__)).parent
    files = {path.stem for path in folder.glob("*.py")} - {"__init__"}

    assert files == {MODULES.get(name, name) for name in COMMANDS}
    for name in COMMANDS:
        command = program.get_command(click.Context(program), name)
        assert command is not None
        assert command.name == name


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_and_its_parameters_too(run: CommandLine, name: str) -> None:
    """An option without a word of explanation is one that nobody uses."""
    outcome = run(name, "--help")
    command = program.get_command(click.Context(program), name)

    assert outcome.exit_code == 0
    assert command is not None
    assert command.help
    for parameter in command.params:
        assert isinstance(parameter, click.Argument) or getattr(parameter, "help", None), parameter.name


@pytest.mark.parametrize("name", ["status", "list", "show", "paths", "logs", "stop", "restart", "delete"])
def test_every_reading_command_can_answer_in_json(name: str) -> None:
    """A script must not have to read what was written for people."""
    command = program.get_command(click.Context(program), name)

    assert command is not None
    assert "--json" in [option for parameter in command.params for option in parameter.opts]


@pytest.mark.parametrize(
    "words",
    [
        ["frobnicate"],
        ["show"],
        ["show", "a_1", "--version", "0"],
        ["show", "a_1", "--frobnicate"],
        ["list", "--limit", "many"],
        ["--frobnicate", "status"],
        ["delete", "a_1"],
        ["status", "--watch"],
        ["logs", "--follow"],
    ],
    ids=" ".join,
)
def test_a_usage_error_has_the_envelope_too(run: CommandLine, words: list[str]) -> None:
    """Such errors are raised before a command runs; a script reads them like any other."""
    outcome = run(*words, "--json")

    assert outcome.exit_code == ExitCode.USAGE
    assert outcome.envelope["status"] == "error"
    assert outcome.envelope["errors"][0]["code"] == "usage"
    assert outcome.envelope["command"] == next((word for word in words if word in COMMANDS), "")


def test_a_usage_error_for_people_is_on_stderr_and_says_where_help_is(run: CommandLine) -> None:
    """Nothing that is no result goes to stdout."""
    outcome = run("show")

    assert outcome.exit_code == 2
    assert outcome.out == ""
    assert outcome.err == "error: Missing argument 'HANDLE'.\nSee: mcpstated show --help\n"


def test_json_after_two_dashes_is_an_argument(run: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A handle cannot be called that, but then the error is for people."""
    monkeypatch.setenv("MCPSTATED_NO_SPAWN", "1")

    outcome = run("show", "--", "--json")

    assert outcome.exit_code == ExitCode.DAEMON_NOT_RUNNING
    assert outcome.err.startswith("error: ")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (DaemonNotRunning("There is none."), ExitCode.DAEMON_NOT_RUNNING),
        (VersionSkew("They differ."), ExitCode.VERSION_SKEW),
        (DaemonUnavailable("It is stuck."), ExitCode.FAILED),
        (InvalidInput("No.", field="limit"), ExitCode.USAGE),
        (click.UsageError("No."), ExitCode.USAGE),
        (click.ClickException("No."), ExitCode.FAILED),
        (PermissionError(13, "Permission denied", "/x"), ExitCode.FAILED),
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_kind_of_error_has_its_exit_code(error: Exception, code: ExitCode) -> None:
    """Scripts tell `not there` from `does not work` and from `you called it wrong` by these alone."""
    assert failure("status", error).exit_code == code


@pytest.mark.parametrize("error", ERRORS)
def test_every_error_of_the_store_keeps_its_code_and_details(error: type[Exception]) -> None:
    """The codes of tool replies and of the command line are one list."""
    problem = problem_of(error("It was refused.", handle="a_1", hint="Do this."))

    assert problem.code == error.code  # type: ignore[attr-defined]
    assert problem.details == {"handle": "a_1"}
    assert problem.hint == "Do this."


def test_two_ways_to_have_no_daemon_have_codes_of_their_own() -> None:
    """They have exit codes of their own, and a program should not have to compare both."""
    assert problem_of(DaemonNotRunning("No.")).code == "daemon_not_running"
    assert problem_of(VersionSkew("No.")).code == "version_skew"


def test_a_fault_of_ours_is_not_dressed_up_as_an_error() -> None:
    """A traceback can be reported and mended; a polite sentence hides it."""
    with pytest.raises(KeyError):
        failure("status", KeyError("x"))


def test_status_without_a_daemon_says_where_the_store_is_and_exits_with_3(
    run: CommandLine, tmp_path: Path
) -> None:
    """Whether it runs is what the caller wanted to know, so it is no failure, and nothing is started."""
    store = tmp_path / "store"
    store.mkdir()
    (store / "state.db").write_bytes(b"x" * 3000)
    (store / "state.db-wal").write_bytes(b"x" * 96)

    for_people, for_programs = run("status"), run("status", "--json")

    assert for_people.exit_code == 3
    assert for_people.out.startswith("No daemon is running.\n")
    assert f"{store}/state.db (3.0 KiB)" in for_people.out
    assert "mcpstated restart" in for_people.out
    assert for_people.err == ""
    assert for_programs.exit_code == 3
    assert for_programs.envelope["data"] == {
        "daemon": None,
        "store": {"path": f"{store}/state.db", "exists": True, "size_bytes": 3096, "size": 3096},
        "sessions": [],
    }
    assert for_programs.envelope["errors"][0]["code"] == "daemon_not_running"
    assert sorted(path.name for path in store.iterdir()) == ["state.db", "state.db-wal"]


def test_status_says_so_if_nobody_may_start_the_daemon(
    run: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its reader waits for a client to start what no client may start."""
    monkeypatch.setenv("MCPSTATED_NO_SPAWN", "1")

    assert "MCPSTATED_NO_SPAWN is set" in run("status").out


def test_stop_without_a_daemon_is_no_error(run: CommandLine, tmp_path: Path) -> None:
    """What was asked for is the case."""
    assert run("stop").out == "No daemon is running.\n"
    assert run("stop", "--json").data == {"stopped": None}
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("words", [["list"], ["show", "a_1"], ["delete", "a_1", "--yes"]], ids=" ".join)
def test_a_command_that_needs_a_daemon_and_may_not_start_one_exits_with_3(
    run: CommandLine, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    """MCPSTATED_NO_SPAWN is obeyed by people's commands as by shims."""
    monkeypatch.setenv("MCPSTATED_NO_SPAWN", "1")

    outcome = run(*words, "--json")

    assert outcome.exit_code == 3
    assert outcome.envelope["errors"][0]["code"] == "daemon_not_running"


def test_restart_refuses_to_stop_what_it_may_not_start_again(
    run: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of a restart is a stop that nobody asked for."""
    monkeypatch.setenv("MCPSTATED_NO_SPAWN", "1")

    assert run("restart").exit_code == ExitCode.USAGE


def test_delete_does_not_ask_where_nobody_can_answer(
    run: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a script the question would hang, or read an answer that was meant for something else."""
    monkeypatch.setattr(sys, "stdin", Path(os.devnull).open())  # noqa: SIM115

    outcome = run("delete", "a_1")

    assert outcome.exit_code == ExitCode.USAGE
    assert "--yes" in outcome.err
    sys.stdin.close()


@pytest.mark.parametrize("directory", ["store", "${HOME}/store"])
def test_a_directory_that_is_not_absolute_is_refused(
    capsys: pytest.CaptureFixture[str], directory: str
) -> None:
    """It would mean another store in every directory that somebody calls from."""
    outcome = CommandLine(capsys)("--data-dir", directory, "status", "--json")

    assert outcome.exit_code == ExitCode.USAGE
    assert outcome.envelope["errors"][0]["code"] == "invalid_input"


def test_the_directory_may_be_named_before_or_after_the_command(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Nobody remembers which; where both are given the nearer one wins."""
    run = CommandLine(capsys)
    first, second = str(tmp_path / "first"), str(tmp_path / "second")

    before = run("--data-dir", first, "paths", "--json").data["paths"][0]["path"]
    after = run("paths", "--data-dir", second, "--json").data["paths"][0]["path"]
    both = run("--data-dir", first, "paths", "--data-dir", second, "--json").data["paths"][0]["path"]

    assert [before, after, both] == [first, second, second]


def test_paths_say_what_each_file_is_and_whether_it_is_there(run: CommandLine, tmp_path: Path) -> None:
    """It answers where the data is, what to back up and what may be deleted, without a daemon."""
    store = tmp_path / "store"
    store.mkdir()
    (store / "daemon.log").touch()
    (store / "daemon.log.1").touch()

    entries = {entry["name"]: entry for entry in run("paths", "--json").data["paths"]}

    assert entries["database"]["path"] == f"{store}/state.db"
    assert all(entry["meaning"] for entry in entries.values())
    there = [name for name, entry in entries.items() if entry["exists"]]
    assert there == ["data_dir", "log", "log_1"]


def test_paths_follow_the_backend_setting(run: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database may lie elsewhere, and then that is the file to back up."""
    monkeypatch.setenv("MCPSTATED_BACKEND", "sqlite:////srv/states.db")

    entries = {entry["name"]: entry["path"] for entry in run("paths", "--json").data["paths"]}

    assert entries["database"] == "/srv/states.db"


@pytest.mark.requirement("C03")
def test_paths_note_that_xdg_data_home_is_left_out(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Clients pass HOME on and no XDG variable; a user who set one should learn why it does nothing here."""
    run = CommandLine(capsys)
    assert run("paths", "--json").data["notes"] == []

    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "elsewhere"))

    notes = run("paths", "--json").data["notes"]
    assert len(notes) == 1
    assert str(tmp_path / "elsewhere") in notes[0]
    assert "MCPSTATED_DATA_DIR" in notes[0]


def test_a_config_file_that_cannot_be_read_is_named(run: CommandLine, tmp_path: Path) -> None:
    """Ignoring it would start a daemon with other limits than its owner wrote down."""
    store = tmp_path / "store"
    store.mkdir()
    (store / "config.toml").write_bytes(b"[daemon\n")

    outcome = run("status", "--json")

    assert outcome.exit_code == ExitCode.USAGE
    assert outcome.envelope["errors"][0]["field"] == "config.toml"


def test_logs_show_the_end_of_the_file_without_a_daemon(run: CommandLine, tmp_path: Path) -> None:
    """After a crash there is no daemon to ask, and that is when the log is wanted."""
    store = tmp_path / "store"
    store.mkdir()
    (store / "daemon.log").write_text("one\ntwo\x1b[2J\nthree\n")

    assert run("logs", "-n", "2").out == "two\\x1b[2J\nthree\n"
    assert run("logs", "-n", "2", "--json").data == {
        "path": f"{store}/daemon.log",
        "lines": ["two\x1b[2J", "three"],
    }


def test_logs_before_the_first_start_are_empty(run: CommandLine, tmp_path: Path) -> None:
    """Nothing has happened, and that is what it says."""
    assert run("logs").out == f"There is nothing in {tmp_path}/store/daemon.log.\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_the_shell(run: CommandLine, shell: str) -> None:
    """It is evaluated by the shell, so it must come out byte for byte."""
    from click.shell_completion import get_completion_class

    complete = get_completion_class(shell)
    assert complete is not None
    expected = complete(program, {}, "mcpstated", "_MCPSTATED_COMPLETE").source()

    assert run("completion", shell).out.rstrip("\n") == expected.rstrip("\n")
    assert "_MCPSTATED_COMPLETE" in expected


def complete(words: str, data_dir: Path) -> list[str]:
    """Return what bash is offered after `mcpstated ` and these words, the last one being typed."""
    parts = ["mcpstated", "--data-dir", str(data_dir), *words.split(" ")]
    environ = {
        **os.environ,
        "_MCPSTATED_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(parts),
        "COMP_CWORD": str(len(parts) - 1),
    }
    done = subprocess.run(
        [sys.executable, "-m", "mcpstated.cli"],
        env=environ,
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


def test_a_shell_is_offered_commands_options_and_choices(tmp_path: Path) -> None:
    """The script asks the program itself, so what it offers is what there is."""
    assert complete("sta", tmp_path) == ["status"]
    assert complete("status --j", tmp_path) == ["--json"]
    assert complete("completion f", tmp_path) == ["fish"]


def test_completing_a_handle_starts_no_daemon_and_prints_no_error(tmp_path: Path) -> None:
    """Pressing a key in a shell must have no effect but an offer."""
    assert complete("show r", tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_help_imports_nothing_heavy() -> None:
    """Help and completion come while somebody waits for them: no trio, no rich, no MCP."""
    code = (
        "import sys; from mcpstated.cli.main import program; program.main(['--help'], standalone_mode=False);"
        "names = {name.partition('.')[0] for name in sys.modules};"
        "print(sorted(names & {'trio', 'rich', 'mcp', 'fastmcp', 'apsw'}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30
    )

    assert done.stdout.splitlines()[-1] == "[]"


def test_a_reader_that_leaves_early_gets_no_traceback(tmp_path: Path) -> None:
    """`mcpstated logs | head -1` is a normal thing to type."""
    log = tmp_path / "daemon.log"
    log.write_text("x" * 200 + "\n" + "line\n" * 100_000)
    command = f'"{sys.executable}" -m mcpstated.cli --data-dir "{tmp_path}" logs -n 100000 | head -c 10'

    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True, timeout=30)

    assert done.stderr == ""
