"""An MCP client with a real shim of its own: several calls at a time, and now and then a violent death.

The handshake is that of the older era. The shim has a process group of its own, so that Ctrl-C in the
terminal ends the self-test in order and not its shims.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trio

from mcpstated.cli.selftest.history import NO_ANSWER, Fields
from mcpstated.cli.stage import Stage

CALL_SECONDS = 60.0
"""No call takes longer, for the shim answers by itself long before."""
_END_SECONDS = 10.0
_RECEIVE_BYTES = 65536


class ShimEnded(Exception):
    """A shim ended, or did not shake hands, though nobody had killed it."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of one call, and when."""

    started: float
    ended: float
    reply: Fields | None
    """None if the client was killed before it came."""


class _Waiting:
    """One request that was sent."""

    def __init__(self) -> None:
        self.is_over = trio.Event()
        self.message: Mapping[str, Any] | None = None
        self.ended = math.inf


class ShimClient:
    """One client; any number of tasks may call."""

    def __init__(self, name: str, stage: Stage) -> None:
        self.name = name
        self._stage = stage
        self._process: trio.Process | None = None
        self._ready = trio.Event()
        self._sending = trio.Lock()
        self._waiting: dict[int, _Waiting] = {}
        self._last_id = 0
        self._is_killed = False

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the shim, another one after each kill, until cancelled.

        Raises:
            ShimEnded: It ended by itself.
        """
        while True:
            self._is_killed = False
            await self._live(task_status)
            task_status = trio.TASK_STATUS_IGNORED
            if not self._is_killed:
                raise ShimEnded(f"The shim of {self.name} ended although its client was there.")

    def kill(self) -> bool:
        """Kill the shim, with whatever it is doing; False if it is only just starting."""
        if self._process is None or not self._ready.is_set():
            return False
        self._is_killed = True
        self._process.kill()
        return True

    async def call(self, tool: str, arguments: Fields) -> Answer:
        """Call a tool, and return what became of it."""
        while not (ready := self._ready).is_set():
            await ready.wait()
        started = time.monotonic()
        waiting = await self._ask("tools/call", {"name": tool, "arguments": arguments})
        if waiting.message is None:
            if not waiting.is_over.is_set():
                text = f"no answer within {CALL_SECONDS:g} s"
                return Answer(started, math.inf, {"ok": False, "error": {"code": NO_ANSWER, "message": text}})
            return Answer(started, math.inf, None)
        return Answer(started, waiting.ended, _structured(waiting.message))

    async def _live(self, task_status: trio.TaskStatus[None]) -> None:
        directory = Path(self._stage.paths.data_dir)
        with (directory / f"{self.name}.stderr").open("ab") as errors:
            self._process = await trio.lowlevel.open_process(
                [sys.executable, "-m", "mcpstated.cli", "shim"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=self._stage.environ,
                process_group=0,
            )
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._read, nursery.cancel_scope)
                await self._shake_hands()
                self._ready.set()
                task_status.started()
        finally:
            self._ready = trio.Event()
            self._process.kill()
            with trio.move_on_after(_END_SECONDS, shield=True):
                await self._process.wait()
            for stream in (self._process.stdin, self._process.stdout):
                if stream is not None:
                    await trio.aclose_forcefully(stream)
            for waiting in self._waiting.values():
                waiting.is_over.set()
            self._waiting.clear()

    async def _shake_hands(self) -> None:
        information = {"name": self.name, "version": "1"}
        asked = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": information}
        give_up_at = time.monotonic() + CALL_SECONDS
        while (waiting := await self._ask("initialize", asked)).message is not None:
            if "result" in waiting.message:
                await self._send({"method": "notifications/initialized"})
                return
            if time.monotonic() > give_up_at:  # the shim says so when a daemon takes long to start
                break
        raise ShimEnded(f"The shim of {self.name} was not welcomed.")

    async def _ask(self, method: str, params: Fields) -> _Waiting:
        self._last_id = number = self._last_id + 1
        self._waiting[number] = waiting = _Waiting()
        with trio.move_on_after(CALL_SECONDS):
            await self._send({"id": number, "method": method, "params": params})
            await waiting.is_over.wait()
        self._waiting.pop(number, None)
        return waiting

    async def _send(self, message: Fields) -> None:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        line = json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")).encode() + b"\n"
        try:
            async with self._sending:
                await process.stdin.send_all(line)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return  # it was killed; whoever waits is told by the end of its output

    async def _read(self, life: trio.CancelScope) -> None:
        """Hand out answers until the shim's output ends, which ends this life of the client."""
        process = self._process
        assert process is not None
        assert process.stdout is not None
        held = bytearray()
        while data := await process.stdout.receive_some(_RECEIVE_BYTES):
            held += data
            *lines, rest = held.split(b"\n")
            held = bytearray(rest)
            for line in lines:
                message = json.loads(line)
                waiting = self._waiting.pop(message.get("id"), None)
                if waiting is not None:
                    waiting.message, waiting.ended = message, time.monotonic()
                    waiting.is_over.set()
        life.cancel()


def _structured(message: Fields) -> Fields:
    """Return what a tool answered; a protocol error, which none should get, in the same form."""
    if "result" in message:
        content: Fields = message["result"]["structuredContent"]
        return content
    return {"ok": False, "error": {"code": "protocol_error", "message": message["error"]["message"]}}
