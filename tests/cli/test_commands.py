"""The commands against a real daemon in the test's own process: list, show, delete, status, completion."""

from __future__ import annotations

import functools
import io
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import click
import pytest
import trio

from mcpstated.answers import Status
from mcpstated.cli.exit_codes import ExitCode
from mcpstated.cli.handles import complete_handles
from mcpstated.cli.options import Invocation
from mcpstated.connection import DaemonClient, open_client
from support.command_line import CommandLine, Outcome
from support.daemons import RunningDaemon, daemon_in
from support.wire import shim_at

HOSTILE = "[red]x[/]\x1b[31m\n\u202ey"
Run = Callable[..., Awaitable[Outcome]]


@asynccontextmanager
async def store(data_dir: Path, *, user: str = "") -> AsyncIterator[tuple[RunningDaemon, DaemonClient]]:
    """Run a daemon in the directory, with a client that stores what the test needs."""
    async with (
        daemon_in(data_dir) as daemon,
        open_client(
            daemon.settings.paths, role="library", environ={"MCPSTATED_USER": user}, start=False
        ) as client,
    ):
        yield daemon, client


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], data_dir: Path) -> Run:
    """Run a command line in a thread, for it has a trio of its own."""
    command_line = CommandLine(capsys, "--data-dir", str(data_dir))

    async def run_in_thread(*words: str) -> Outcome:
        with trio.fail_after(30):
            return await trio.to_thread.run_sync(functools.partial(command_line, *words))

    return run_in_thread


async def test_list_tells_of_each_handle_and_never_its_state(run: Run, data_dir: Path) -> None:
    """Newest change first, under the names of the tools' replies."""
    async with store(data_dir) as (_, client):
        first = (await client.mint("research", {"secret": "s"}, title="One")).info
        second = (await client.mint("draft", {}, ttl_days=7)).info
        outcome = await run("list", "--json")

    assert outcome.data["total"] == 2
    assert outcome.data["next_cursor"] is None
    newest, oldest = outcome.data["handles"]
    assert [newest["handle"], oldest["handle"]] == [second.handle, first.handle]
    assert oldest["title"] == "One"
    assert oldest["version"] == 1
    assert oldest["expires_at"] is None
    assert newest["expires_at"].endswith("Z")
    assert "secret" not in json.dumps(oldest).replace(oldest["outline"], "")
    assert '"s"' not in outcome.out


async def test_list_for_people_shows_titles_without_obeying_them(run: Run, data_dir: Path) -> None:
    """A title is text that some model stored; in a table it must stay in its row."""
    async with store(data_dir) as (_, client):
        info = (await client.mint("research", {}, title="[red]x[/]\u202ey")).info
        outcome = await run("list")

    heading, row = outcome.out.splitlines()
    assert heading.split() == ["HANDLE", "V", "TITLE", "UPDATED", "SIZE", "WRITER", "EXPIRES"]
    assert row.startswith(f"{info.handle}  1  [red]x[/]\\u202ey")


@pytest.mark.requirement("C28")
async def test_list_goes_page_by_page_or_through_all_of_them(run: Run, data_dir: Path) -> None:
    """A store of thousands is listed without a flood, and wholly where that is wanted."""
    async with store(data_dir) as (_, client):
        handles = [(await client.mint("k", {})).info.handle for _ in range(205)]
        some = await run("list", "--limit", "3", "--json")
        more = await run("list", "--limit", "300", "--cursor", some.data["next_cursor"], "--json")
        everything = await run("list", "--all", "--json")
        for_people = await run("list", "--limit", "3")

    def names(outcome: Outcome) -> list[str]:
        return [entry["handle"] for entry in outcome.data["handles"]]

    assert names(some) == handles[:-4:-1]
    assert names(some) + names(more) == handles[::-1]
    assert names(everything) == handles[::-1]
    assert everything.data["total"] == 205
    assert "3 of 205" in for_people.out
    assert some.data["next_cursor"] in for_people.out


async def test_list_filters_by_kind_and_words(run: Run, data_dir: Path) -> None:
    """The filters are the tools' own."""
    async with store(data_dir) as (_, client):
        await client.mint("draft", {}, title="Heat pumps")
        wanted = (await client.mint("research", {}, title="Heat pumps in old houses")).info.handle
        outcome = await run("list", "--kind", "research", "--query", "houses heat", "--json")
        nothing = await run("list", "--query", "nowhere")

    assert [entry["handle"] for entry in outcome.data["handles"]] == [wanted]
    assert nothing.out == "No handle matches.\n"


async def test_show_gives_the_snapshot_with_the_state_s_own_numbers(run: Run, data_dir: Path) -> None:
    """What is stored is what a script gets, digit for digit."""
    state = {"big": 12345678901234567890123, "whole": 1.0, "zero": -0.0, "text": HOSTILE}
    async with store(data_dir) as (_, client):
        handle = (await client.mint("research", state)).info.handle
        outcome = await run("show", handle, "--json")

    assert '"big": 12345678901234567890123' in outcome.out
    assert '"whole": 1.0' in outcome.out
    assert '"zero": -0.0' in outcome.out
    assert outcome.data["state"] == state
    assert outcome.data["version"] == 1
    assert not any(c in outcome.out for c in "\x1b\u202e")


async def test_show_gives_a_part_or_an_older_version(run: Run, data_dir: Path) -> None:
    """A big state is read in parts, and what it was before a change can be looked up."""
    async with store(data_dir) as (_, client):
        handle = (await client.mint("k", {"a": {"b": [1, 2]}})).info.handle
        await client.save(handle, {"a": {"b": [3]}}, expect_version=1)
        part = await run("show", handle, "--path", "/a/b/0", "--json")
        older = await run("show", handle, "--path", "a.b", "--version", "1", "--json")
        missing = await run("show", handle, "--path", "a.x", "--json")

    assert (part.data["state"], part.data["path"], part.data["version"]) == (3, "/a/b/0", 2)
    assert (older.data["state"], older.data["version"]) == ([1, 2], 1)
    assert missing.exit_code == ExitCode.USAGE
    assert missing.envelope["errors"][0]["field"] == "path"


async def test_show_for_people_obeys_nothing_in_the_state(run: Run, data_dir: Path) -> None:
    """Reading a state in a terminal must be safe, whoever wrote it."""
    async with store(data_dir) as (_, client):
        handle = (await client.mint("k", {"text": HOSTILE}, title="T")).info.handle
        outcome = await run("show", handle)

    assert '"text": "[red]x[/]\\u001b[31m\\n\\u202ey"' in outcome.out
    assert not any(c in outcome.out for c in "\x1b\u202e")


async def test_a_handle_that_is_not_there_fails_with_its_code(run: Run, data_dir: Path) -> None:
    """The error is the store's own, on stderr for people and in the envelope for programs."""
    async with store(data_dir):
        for_programs = await run("show", "research_k3v9x2mq", "--json")
        for_people = await run("show", "research_k3v9x2mq")

    assert for_programs.exit_code == ExitCode.FAILED
    assert for_programs.envelope["errors"][0]["code"] == "handle_not_found"
    assert for_people.out == ""
    assert for_people.err.startswith("error: ")


@pytest.mark.requirement("P5")
async def test_each_user_sees_his_own_state_only(run: Run, data_dir: Path) -> None:
    """`--user` says whose state is meant, and nobody else's is so much as mentioned."""
    async with store(data_dir, user="anna") as (_, client):
        handle = (await client.mint("k", {})).info.handle
        hers = await run("list", "--user", "anna", "--json")
        his = await run("list", "--user", "bert", "--json")
        default = await run("list", "--json")
        shown = await run("show", handle, "--user", "bert", "--json")

    assert [entry["handle"] for entry in hers.data["handles"]] == [handle]
    assert his.data["handles"] == default.data["handles"] == []
    assert shown.envelope["errors"][0]["code"] == "handle_not_found"


class Terminal(io.StringIO):
    """Standard input at which somebody sits."""

    def isatty(self) -> bool:
        return True


async def test_delete_asks_first_and_takes_no_for_an_answer(
    run: Run, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The question shows what would be lost, and stands on stderr, away from the result."""
    async with store(data_dir) as (_, client):
        handle = (await client.mint("k", {}, title="Heat pumps")).info.handle
        monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
        declined = await run("delete", handle)
        assert (await client.load(handle)).info.version == 1
        monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
        confirmed = await run("delete", handle, "--json")
        assert (await client.list()).total == 0

    assert declined.exit_code == ExitCode.FAILED
    assert f'Delete {handle} "Heat pumps", version 1' in declined.err
    assert "Nothing was deleted." in declined.err
    data = json.loads(confirmed.out)["data"]
    assert (data["handle"], data["is_deleted"]) == (handle, True)
    assert data["trash_until"].endswith("Z")


async def test_delete_with_yes_does_not_ask(run: Run, data_dir: Path) -> None:
    """For scripts, which have decided already."""
    async with store(data_dir) as (_, client):
        handle = (await client.mint("k", {})).info.handle
        outcome = await run("delete", handle, "--yes", "--json")

        assert outcome.data["is_deleted"] is True
        assert (await client.list()).total == 0


@pytest.mark.requirement("C21")
async def test_an_expired_handle_can_still_be_deleted(
    run: Run, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of it can be read for the question, and that must not stand in the way."""
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    async with store(data_dir) as (_, client):
        handle = (await client.mint("k", {}, ttl_days=1e-9)).info.handle
        outcome = await run("delete", handle, "--json")

    assert outcome.exit_code == 0


async def test_status_tells_of_daemon_store_and_clients(run: Run, data_dir: Path) -> None:
    """One screen, or one object, that says what there is; the asking command itself is left out."""
    async with store(data_dir) as (daemon, client):
        await client.mint("k", {})
        async with shim_at(daemon.socket) as shim:
            await shim.handshake("Claude Code")
            for_programs, for_people = await run("status", "--json"), await run("status")
        expected = await client.status()

    data = for_programs.data
    assert data["daemon"]["pid"] == os.getpid()
    assert data["daemon"]["instance"] == expected.daemon.instance
    assert data["daemon"]["started_at"].endswith("Z")
    assert set(data["daemon"]) >= {"version", "protocol", "socket", "uptime_seconds"}
    assert data["store"]["path"] == str(data_dir / "state.db")
    assert data["store"]["size"] == data["store"]["size_bytes"] > 0
    assert (data["store"]["revision"], data["store"]["handles"]) == (1, 1)
    assert [session["role"] for session in data["sessions"]] == ["library", "shim"]
    assert data["sessions"][1]["client"].startswith("Claude Code")
    assert "is running" in for_people.out
    assert "1 handle," in for_people.out
    assert "Claude Code" in for_people.out


async def test_a_client_s_own_name_is_shown_and_not_obeyed(run: Run, data_dir: Path) -> None:
    """Whoever connects chooses it."""
    async with store(data_dir) as (daemon, _), shim_at(daemon.socket) as shim:
        await shim.handshake("[red]x[/]\x1b[31m")
        outcome = await run("status")

    assert "[red]x[/]\\x1b[31m" in outcome.out
    assert "\x1b" not in outcome.out


async def test_a_running_daemon_s_handles_are_completed(data_dir: Path) -> None:
    """What is offered can be typed as it is, with the title to choose by."""
    async with store(data_dir) as (_, client):
        handle = (await client.mint("research", {}, title="Heat\u202e pumps")).info.handle
        await client.mint("draft", {})
        invocation = Invocation(data_dir=str(data_dir))
        found = await trio.to_thread.run_sync(complete_handles, invocation, "res")
        whole = await trio.to_thread.run_sync(complete_handles, invocation, "")

    assert [(item.value, item.help) for item in found] == [(handle, "Heat\\u202e pumps")]
    assert len(whole) == 2


async def test_the_client_s_errors_come_out_of_the_block_as_they_were(data_dir: Path) -> None:
    """Who writes `except StaleWrite` must not have to know that there are tasks behind the connection."""
    mine = click.UsageError("mine")

    async def fail_in_the_block() -> None:
        async with open_client(daemon.settings.paths, role="cli", environ={}, start=False) as client:
            await client.status()
            raise mine

    async with daemon_in(data_dir) as daemon:
        with pytest.raises(click.UsageError) as caught:
            await fail_in_the_block()
        assert caught.value is mine


async def test_a_watch_tells_of_changes_of_other_clients(data_dir: Path) -> None:
    """The live screen, and later the library, hear of a change once it is durable."""
    async with store(data_dir) as (daemon, client):
        async with (
            open_client(daemon.settings.paths, role="cli", environ={}, start=False) as watcher,
            watcher.watch() as watch,
        ):
            handle = (await client.mint("k", {})).info.handle
            await client.delete(handle)
            with trio.fail_after(10):
                changes = [await anext(watch) for _ in range(2)]

    assert [(change.handle, change.action) for change in changes] == [(handle, "mint"), (handle, "delete")]
    assert changes[0].revision < changes[1].revision


async def test_clients_that_come_and_go_leave_nothing_behind(no_leaks: None, data_dir: Path) -> None:
    """A descriptor or a task lost per connection would end a long-lived program."""
    async with daemon_in(data_dir) as daemon:
        answers: list[Status] = []
        for _ in range(50):
            with trio.fail_after(10):
                async with open_client(daemon.settings.paths, role="cli", environ={}, start=False) as client:
                    answers.append(await client.status())

    assert len(answers) == 50
    assert all(len(status.sessions) <= 2 for status in answers)
