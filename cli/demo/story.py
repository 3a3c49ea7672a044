"""A research assistant's day, told by what really happens: two clients, one state, one dead daemon.

Each chapter calls tools, checks what came back, and only then says what it has shown.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from typing import Any

import trio

from mcpstated.answers import Status
from mcpstated.cli import words
from mcpstated.cli.demo.actor import Actor, Reply, acting
from mcpstated.cli.demo.failed import DemoFailed, expect
from mcpstated.cli.demo.narrator import Narrator
from mcpstated.cli.gone import wait_gone
from mcpstated.cli.stage import Stage
from mcpstated.cli.status_view import running_blocks

KIND = "research"
TITLE = "Heat pumps for old houses"
APPENDS_EACH = 20
_GONE_SECONDS = 5.0
_FIRST = {"title": "Field study of 29 heat pumps", "year": 2020}
_SECOND = {"title": "Low-temperature radiators, measured", "year": 2023}
_THIRD = {"title": "What a cold week costs", "year": 2026}


@dataclass(frozen=True, slots=True)
class Scene:
    """What every chapter works with."""

    stage: Stage
    narrator: Narrator
    first: Actor
    second: Actor


async def tell(stage: Stage, narrator: Narrator) -> None:
    """Play the whole day.

    Raises:
        DemoFailed: Something did not happen as it should.
    """
    narrator.title(
        "Two MCP clients, one daemon, one state.",
        f"It all happens in {stage.paths.data_dir}, which is removed at the end.",
    )
    narrator.chapter("Two clients start, each with its own shim; the first shim starts the daemon")
    async with acting("claude-desktop", "Claude Desktop", stage, mode="auto") as first:
        narrator.event(first.name, f"connected, MCP {first.protocol}", first.start_seconds)
        async with acting("cursor", "Cursor", stage, mode="legacy") as second:
            narrator.event(second.name, f"connected, MCP {second.protocol}", second.start_seconds)
            scene = Scene(stage, narrator, first, second)
            handle = await one_begins(scene)
            await the_other_continues(scene, handle)
            await both_append(scene, handle)
            await both_save(scene, handle)
            await the_daemon_dies(scene, handle)
            await status_at_the_end(scene)


async def one_begins(scene: Scene) -> str:
    """The first client mints a state and appends to it; returns the handle."""
    narrator, first = scene.narrator, scene.first
    narrator.chapter(f"{first.name} begins a piece of research")
    state = {"question": "Do heat pumps pay off in old houses?", "sources": [], "status": "open"}
    saved = await first.call("state_save", kind=KIND, title=TITLE, state=state)
    handle = str(saved.fields["handle"])
    narrator.call(saved, f"{handle}, version {saved.fields['version']}")
    appended = await first.call("state_patch", handle=handle, ops=[_append(_FIRST)])
    narrator.call(appended, f"version {appended.fields['version']}, {_touched(appended)}")
    expect(
        saved.fields["version"] == 1 and appended.fields["version"] == 2, "versions rise by one per change"
    )
    return handle


async def the_other_continues(scene: Scene, handle: str) -> None:
    """The second client finds the state, reads it and goes on."""
    narrator, first, second = scene.narrator, scene.first, scene.second
    narrator.chapter(f"{second.name} finds it and goes on")
    listed = await second.call("state_list", kind=KIND)
    entries = listed.fields["handles"]
    expect([entry["handle"] for entry in entries] == [handle], f"{second.name} sees what {first.name} saved")
    entry = entries[0]
    narrator.call(
        listed,
        f'"{entry["title"]}", version {entry["version"]}, written by {entry["last_writer"]}',
    )
    loaded = await second.call("state_load", handle=handle)
    state = loaded.fields["state"]
    expect(state["sources"] == [_FIRST], f"{second.name} reads what {first.name} wrote")
    narrator.call(loaded, f"{_sources(state)}; {state['question']}")
    ops = [_append(_SECOND), {"op": "set_key", "path": "", "key": "status", "value": "in progress"}]
    patched = await second.call("state_patch", handle=handle, ops=ops)
    narrator.call(patched, f"version {patched.fields['version']}, {_touched(patched)}")


async def both_append(scene: Scene, handle: str) -> None:
    """Both append at the same moment, again and again."""
    narrator = scene.narrator
    narrator.chapter(f"Both append at the same moment, {APPENDS_EACH} times each")
    before = await _load(scene.first, handle)
    seconds: dict[str, list[float]] = {}

    async def append_often(actor: Actor) -> None:
        seconds[actor.name] = []
        for number in range(1, APPENDS_EACH + 1):
            note = {"title": f"Note {number} of {actor.name}", "year": 2026}
            reply = await actor.call("state_patch", handle=handle, ops=[_append(note)])
            seconds[actor.name].append(reply.seconds)

    async with trio.open_nursery() as nursery:
        for actor in (scene.first, scene.second):
            nursery.start_soon(append_often, actor)
    after = await _load(scene.second, handle)
    for name, took in seconds.items():
        narrator.calls(name, "state_patch", took, f"{len(took)} calls, this is the median")
    narrator.call(after, f"version {after.fields['version']}, {_sources(after.fields['state'])}")
    added = after.fields["state"]["sources"][len(before.fields["state"]["sources"]) :]
    wanted = {f"Note {n} of {name}" for n in range(1, APPENDS_EACH + 1) for name in seconds}
    expect(
        {source["title"] for source in added} == wanted and len(added) == len(wanted),
        "no append is lost or doubled",
    )
    expect(after.fields["version"] - before.fields["version"] == len(wanted), "every append is one version")
    narrator.verdict(f"{len(added)} of {len(wanted)} appends are there: nothing lost, nothing refused.")


async def both_save(scene: Scene, handle: str) -> None:
    """Both replace the document they read; one wins, the other merges from what its error says."""
    narrator = scene.narrator
    narrator.chapter("Both save the whole document at the same moment")
    base = await _load(scene.first, handle)
    version = base.fields["version"]
    changes = {
        scene.first.name: {"conclusion": "Yes, with larger radiators."},
        scene.second.name: {"next_step": "Ask for the prices of 2026."},
    }
    replies: list[tuple[Actor, Reply]] = []

    async def save(actor: Actor) -> None:
        state = {**base.fields["state"], **changes[actor.name]}
        reply = await actor.try_call("state_save", handle=handle, state=state, expect_version=version)
        replies.append((actor, reply))

    async with trio.open_nursery() as nursery:
        for actor in (scene.first, scene.second):
            nursery.start_soon(save, actor)
    (winner, won), (loser, lost) = sorted(replies, key=lambda item: item[1].is_error)
    expect(not won.is_error and lost.is_error, "exactly one of two saves on the same version lands")
    narrator.call(won, f"version {won.fields['version']}")
    expect(lost.fields["code"] == "stale_write", f"the other is told so, not {lost.fields['code']}")
    current = lost.fields["current"]
    narrator.call(lost, f"{lost.fields['code']}: version {current['version']} by {current['last_writer']}")
    expect("state" in current, "the error carries the newest state, which is small here")
    state = {**current["state"], **changes[loser.name]}
    second_try = await loser.call("state_save", handle=handle, state=state, expect_version=current["version"])
    narrator.call(second_try, f"version {second_try.fields['version']}, merged from the error")
    final = (await _load(winner, handle)).fields["state"]
    expected = {**base.fields["state"], **changes[scene.first.name], **changes[scene.second.name]}
    expect(final == expected, "the merged document holds both changes")
    narrator.verdict("Both changes are in the document; nobody overwrote anybody.")


async def the_daemon_dies(scene: Scene, handle: str) -> None:
    """The daemon is killed between two calls; the clients' next calls just work."""
    narrator, stage = scene.narrator, scene.stage
    narrator.chapter("The daemon is killed between two calls")
    before, read = await stage.status(), await _load(scene.first, handle)
    began = time.perf_counter()
    os.kill(before.daemon.pid, signal.SIGKILL)
    expect(await wait_gone(before.daemon.pid, timeout_seconds=_GONE_SECONDS), "SIGKILL ends the daemon")
    narrator.event("kill -9", f"daemon {before.daemon.pid} is dead", time.perf_counter() - began)
    patched = await scene.second.call("state_patch", handle=handle, ops=[_append(_THIRD)])
    narrator.call(patched, f"version {patched.fields['version']}, {_touched(patched)}")
    loaded = await _load(scene.first, handle)
    narrator.call(loaded, f"version {loaded.fields['version']}, {_sources(loaded.fields['state'])}")
    after = await stage.status()
    expect(after.daemon.pid != before.daemon.pid, "another daemon runs")
    expect(_shims(before) == _shims(after), "the clients still talk to the same shim processes")
    sources = [*read.fields["state"]["sources"], _THIRD]
    expect(
        loaded.fields["state"] == {**read.fields["state"], "sources": sources}, "nothing is lost or doubled"
    )
    narrator.verdict(f"Daemon {after.daemon.pid} took over; both clients went on, without an error.")


async def status_at_the_end(scene: Scene) -> None:
    """What `mcpstated status` says now."""
    scene.narrator.chapter("mcpstated status")
    status = await scene.stage.status()
    names = {session.client.partition(" ")[0] for session in status.sessions if session.role == "shim"}
    expect(names == {scene.first.name, scene.second.name}, "the daemon knows both clients by name")
    scene.narrator.space()
    scene.narrator.blocks(running_blocks(status, now_unix=time.time(), own_pid=os.getpid()))


async def _load(actor: Actor, handle: str) -> Reply:
    reply = await actor.call("state_load", handle=handle)
    if "state" not in reply.fields:
        raise DemoFailed(f"{actor.name} loaded {handle} and got no state: {reply.text}")
    return reply


def _append(source: dict[str, Any]) -> dict[str, Any]:
    return {"op": "append", "path": "sources", "value": source}


def _touched(reply: Reply) -> str:
    """Return what a patch says that it touched: `sources now has 2 items`."""
    parts = []
    for touched in reply.fields["touched"]:
        where = touched["path"] or "the document"
        noun = "item" if touched["op"] == "append" else "key"
        parts.append(f"{where} has {words.count(touched['length'], noun)}")
    return ", ".join(parts)


def _sources(state: dict[str, Any]) -> str:
    return words.count(len(state["sources"]), "source")


def _shims(status: Status) -> set[tuple[str, int]]:
    return {(session.client, session.pid) for session in status.sessions if session.role == "shim"}
