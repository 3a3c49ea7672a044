"""A real shim process, with the test as its client."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

SHIM = (sys.executable, "-m", "mcpstated.cli", "shim")


class Lines:
    """Lines as they come out of a descriptor, framed on the newline byte alone."""

    def __init__(self, stream: trio.abc.ReceiveStream) -> None:
        self._stream = stream
        self._held = bytearray()

    async def next(self) -> bytes:
        """Return the next whole line without its newline; fails at the end of the stream."""
        searched = 0
        while (end := self._held.find(b"\n", searched)) < 0:
            searched = len(self._held)
            data = await self._stream.receive_some(65536)
            assert data, f"the stream ended after {self._held[:200]!r}"
            self._held += data
        line = bytes(self._held[:end])
        del self._held[: end + 1]
        return line

    async def rest(self) -> bytes:
        """Return everything up to the end of the stream."""
        while data := await self._stream.receive_some(65536):
            self._held += data
        held = bytes(self._held)
        self._held.clear()
        return held


class ShimProcess:
    """What a client holds of the shim that it started."""

    def __init__(self, process: trio.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self.process = process
        self.stdin = process.stdin
        self.stdout = Lines(process.stdout)
        self.stderr = Lines(process.stderr)

    async def say(self, *lines: bytes) -> None:
        """Write lines, each with its newline."""
        for line in lines:
            await self.stdin.send_all(line + b"\n")

    async def answer(self) -> Any:
        """Return the next line that came out, parsed."""
        return json.loads(await self.stdout.next())

    async def end_input(self) -> None:
        await self.stdin.aclose()

    async def exit_code(self) -> int:
        """Wait for the end of the process."""
        return await self.process.wait()


def shim_environment(data_dir: Path, **more: str) -> dict[str, str]:
    """Return what a client hands on, with the store in `data_dir` and no daemon started from here."""
    handed_on = {name: os.environ[name] for name in ("HOME", "PATH") if name in os.environ}
    return {**handed_on, "MCPSTATED_DATA_DIR": str(data_dir), "MCPSTATED_NO_SPAWN": "1", **more}


@asynccontextmanager
async def shim_process(
    data_dir: Path, *, command: Sequence[str] = SHIM, environ: Mapping[str, str] | None = None
) -> AsyncIterator[ShimProcess]:
    """Run a shim over three pipes; it is killed when the block is left."""
    process = await trio.lowlevel.open_process(
        list(command),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(environ) if environ is not None else shim_environment(data_dir),
    )
    shim = ShimProcess(process)
    try:
        yield shim
    finally:
        if process.returncode is None:
            process.kill()
        with trio.CancelScope(shield=True, deadline=trio.current_time() + 10):
            await process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    await stream.aclose()
