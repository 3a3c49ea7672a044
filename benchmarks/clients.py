"""A client that costs the measurement little: JSON-RPC lines over pipes, nothing parsed on the clock.

It speaks the handshake of protocol 2025-11-25, which both sides know. Requests are built before the
clock starts; an answer is parsed after its last byte came and the clock was read.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROTOCOL = "2025-11-25"
PATIENCE_SECONDS = 120.0
"""How long any answer may take before the run is given up."""
_READ_BYTES = 1 << 20


class ServerGone(Exception):
    """The server closed its output or did not answer in time."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer and how long it took."""

    seconds: float
    message: dict[str, Any]

    @classmethod
    def parse(cls, seconds: float, line: bytes) -> Reply:
        """Return the answer in a line."""
        return cls(seconds, json.loads(line))

    @property
    def is_refused(self) -> bool:
        """True if the call failed, as a protocol error or as a failed tool."""
        result = self.message.get("result")
        return result is None or bool(result.get("isError")) or self.payload.get("ok") is False

    @property
    def payload(self) -> dict[str, Any]:
        """What the tool returned, as an object."""
        result: dict[str, Any] = self.message.get("result") or {}
        structured = result.get("structuredContent")
        if isinstance(structured, dict):
            return structured
        for block in result.get("content", []):
            try:
                decoded = json.loads(block.get("text", ""))
            except ValueError:
                continue
            if isinstance(decoded, dict):
                return decoded
        return {}


class Client:
    """One server process and the pipes to it.

    Args:
        command: The program to start; the clock of `initialize` starts just before that.
        environment: Everything that the process gets.
    """

    def __init__(self, command: Sequence[str], environment: dict[str, str], directory: Path) -> None:
        self._id = 0
        self._buffer = b""
        self._started = time.perf_counter()
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            cwd=directory,
            bufsize=0,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._in, self.out = self.process.stdin.fileno(), self.process.stdout.fileno()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self.out, selectors.EVENT_READ)

    def initialize(self) -> float:
        """Shake hands and return the seconds from the start of the process to its answer."""
        reply = self.request(
            "initialize",
            {
                "protocolVersion": PROTOCOL,
                "capabilities": {},
                "clientInfo": {"name": "benchmark", "version": "1"},
            },
        )
        if "result" not in reply.message:
            raise ServerGone(f"initialize was refused: {reply.message}")
        first_answer = time.perf_counter() - self._started
        self._write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
        return first_answer

    def request(self, method: str, parameters: dict[str, Any]) -> Reply:
        """Send one request and wait for its answer."""
        line = self.line(method, parameters)
        started = time.perf_counter()
        self._write(line)
        return self._answer(started)

    def call(self, tool: str, arguments: dict[str, Any]) -> Reply:
        """Call one tool and wait for its answer."""
        return self.request("tools/call", {"name": tool, "arguments": arguments})

    def must(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Call one tool and return what it said; a refusal ends the run."""
        reply = self.call(tool, arguments)
        if reply.is_refused:
            raise ServerGone(f"{tool} was refused: {json.dumps(reply.message)[:500]}")
        return reply.payload

    def line(self, method: str, parameters: dict[str, Any]) -> bytes:
        """Return the next request as the line to send."""
        self._id += 1
        message = {"jsonrpc": "2.0", "id": self._id, "method": method, "params": parameters}
        return json.dumps(message, separators=(",", ":")).encode() + b"\n"

    def send(self, line: bytes) -> None:
        """Send a line that `line` made."""
        self._write(line)

    def received(self) -> list[bytes]:
        """Return the whole lines that came since; call it when `out` is readable."""
        data = os.read(self.out, _READ_BYTES)
        if not data:
            raise ServerGone("the server closed its output")
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        return lines

    def close(self) -> None:
        """End the process: end of input first, then by force."""
        self._selector.close()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        try:
            self.process.wait(timeout=5.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()

    def _answer(self, started: float) -> Reply:
        chunks = [self._buffer]
        while True:
            if not self._selector.select(PATIENCE_SECONDS):
                raise ServerGone(f"no answer within {PATIENCE_SECONDS:g} seconds")
            data = os.read(self.out, _READ_BYTES)
            seconds = time.perf_counter() - started
            if not data:
                raise ServerGone("the server closed its output")
            chunks.append(data)
            if b"\n" not in data:
                continue
            *lines, rest = b"".join(chunks).split(b"\n")
            chunks = [rest]
            for line in lines:
                message = json.loads(line)
                if message.get("id") == self._id:
                    self._buffer = rest
                    return Reply(seconds, message)

    def _write(self, line: bytes) -> None:
        view = memoryview(line)
        while view:
            view = view[os.write(self._in, view) :]
