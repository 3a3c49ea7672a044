"""A client that misbehaves in one way until it is ended: `python misbehave.py KIND SOCKET`.

It runs in a process of its own, on the interpreter that has mcpstated installed, and prints `ready` once it
has begun. What is cut off or refused is tried again at once: a client that is broken does not learn.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mcpstated.protocol.connection import Connection
from mcpstated.protocol.frames import encode_frame
from mcpstated.protocol.messages import PROTOCOL_MAX, PROTOCOL_MIN, Deliver, Forward, Hello, Request, Response

MIB = 1024 * 1024
_BIG = "x" * (MIB - 1000)
_HANDSHAKE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "misbehave", "version": "1"},
}


class Peer:
    """A connection that has been welcomed in a role."""

    def __init__(self, path: str, role: str) -> None:
        self.socket = _connect(path)
        self.connection = Connection("client")
        self.number = 0
        identity = os.urandom(16) if role == "shim" else b""
        hello = Hello(
            PROTOCOL_MIN, PROTOCOL_MAX, [], role, "misbehave", identity, "misbehave", "", os.getpid()
        )
        self.socket.sendall(self.connection.send(hello))
        self.receive()

    def receive(self) -> object:
        while (message := self.connection.next_event()) is None:
            data = self.socket.recv(MIB)
            if not data:
                raise OSError("the daemon hung up")
            self.connection.receive_data(data)
        return message

    def frame(self, operation: str, **parameters: object) -> bytes:
        self.number += 1
        return self.connection.send(Request(self.number, operation, parameters))

    def request(self, operation: str, **parameters: object) -> dict[str, object]:
        self.socket.sendall(self.frame(operation, **parameters))
        answer = self.receive()
        if not isinstance(answer, Response):
            raise OSError(f"{operation} was refused: {answer!r}"[:300])
        return answer.result

    def forward(self, line: bytes) -> bytes:
        self.number += 1
        return self.connection.send(Forward(self.number, 0, 0, line))

    def handshake(self) -> None:
        message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": _HANDSHAKE}
        self.socket.sendall(self.forward(json.dumps(message).encode()))
        while not isinstance(self.receive(), Deliver):
            pass

    def mint(self, document: object) -> object:
        info = self.request("mint", kind="misbehave", state=json.dumps(document))["info"]
        assert isinstance(info, dict)
        return info["handle"]


def stalled_reader(path: str) -> None:
    """Asks for 1 MiB again and again and never reads."""
    with _peer(path, "library") as peer:
        handle = peer.mint({"x": _BIG})
        _started()
        for _ in range(1000):
            peer.socket.sendall(peer.frame("load", handle=handle))
        peer.socket.recv(1)
        time.sleep(3600)


def stalled_shim(path: str) -> None:
    """The same as an agent: tool calls whose results of 1 MiB nobody takes."""
    with _peer(path, "library") as peer:
        handle = peer.mint({"x": _BIG})
    with _peer(path, "shim") as shim:
        shim.handshake()
        _started()
        for _ in range(1000):
            call = _call("state_load", handle=handle, max_bytes=MIB)
            shim.socket.sendall(shim.forward(call))
        time.sleep(3600)


def slow_writers(path: str) -> None:
    """32 connections write a request a byte at a time."""
    peers = [Peer(path, "library") for _ in range(32)]
    _started()
    while True:
        frames = [peer.frame("status") for peer in peers]
        for place in range(len(frames[0])):
            for peer, frame in zip(peers, frames, strict=True):
                peer.socket.sendall(frame[place : place + 1])
            time.sleep(0.01)
        for peer in peers:
            peer.receive()


def half_frames(path: str) -> None:
    """256 connections hold half a frame of 1 MiB each."""
    peers = [Peer(path, "library") for _ in range(256)]
    for peer in peers:
        peer.socket.sendall(MIB.to_bytes(4, "big") + bytes(MIB // 2))
    _started()
    time.sleep(3600)


def three_bytes(path: str) -> None:
    """200 connections say 3 bytes and nothing more."""
    _silent(path, b"\x00\x00\x01", 200)


def giant_header(path: str) -> None:
    """A header of 4 GiB, over and over."""
    _started()
    while True:
        with _connect(path) as stranger:
            stranger.sendall(b"\xff\xff\xff\xff")
            stranger.recv(4096)


def empty_maps(path: str) -> None:
    """Frames of 16 MiB that hold an array of empty maps."""
    count = 16 * MIB - 16
    frame = encode_frame(b"\xdd" + count.to_bytes(4, "big") + b"\x80" * count)
    _huge_frames(path, lambda _peer: frame)


def tiny_containers(path: str) -> None:
    """JSON lines of 16 MiB that hold nothing but empty lists."""
    line = _call("state_save", kind="misbehave", state={"l": 1}).replace(
        b'"l":1', b'"l":[' + b"[]," * (5 * MIB) + b"[]]"
    )
    _huge_frames(path, lambda peer: peer.forward(line), role="shim")


def long_strings(path: str) -> None:
    """JSON lines of nearly 16 MiB that hold one string."""
    line = _call("state_save", kind="misbehave", state={"x": "x" * (15 * MIB)})
    _huge_frames(path, lambda peer: peer.forward(line), role="shim")


def huge_saves(path: str) -> None:
    """Saves documents of 1 MiB without a pause."""
    with _peer(path, "library") as peer:
        document = {"items": [{"id": n, "text": "x" * 60} for n in range(12_000)], "n": 0}
        handle = peer.mint(document)
        _started()
        version = 1
        while True:
            document["n"] = version
            peer.request("save", handle=handle, state=json.dumps(document), expect_version=version)
            version += 1


def connections(path: str) -> None:
    """Connects and hangs up as fast as it can."""
    _started()
    while True:
        with _connect(path):
            pass


def idle_connections(path: str) -> None:
    """1,000 connections that never say who they are, opened again when they are closed."""
    _silent(path, b"", 1000)


def queue(path: str) -> None:
    """10,000 calls at once, and again."""
    with _peer(path, "library") as peer:
        handle = peer.mint({"l": []})
    with _peer(path, "shim") as shim:
        shim.handshake()
        _started()
        while True:
            operation = {"op": "set_key", "path": "", "key": "k", "value": shim.number}
            line = _call("state_patch", handle=handle, ops=[operation])
            frames = b"".join(shim.forward(line) for _ in range(10_000))
            writer = threading.Thread(target=shim.socket.sendall, args=(frames,), daemon=True)
            writer.start()
            for _ in range(10_000):
                shim.receive()
            writer.join()


def requests(path: str) -> None:
    """10,000 requests of a program at once, and again."""
    with _peer(path, "library") as peer:
        handle = peer.mint({"l": []})
        _started()
        while True:
            ops = json.dumps([{"op": "set_key", "path": "", "key": "k", "value": peer.number}])
            frames = b"".join(peer.frame("patch", handle=handle, ops=ops) for _ in range(10_000))
            writer = threading.Thread(target=peer.socket.sendall, args=(frames,), daemon=True)
            writer.start()
            for _ in range(10_000):
                peer.receive()
            writer.join()


def garbage(path: str) -> None:
    """Lines that are no messages, as fast as they are refused."""
    with _peer(path, "shim") as shim:
        _started()
        while True:
            frames = b"".join(shim.forward(b'{"jsonrpc":"2.0","id":%d,' % n) for n in range(500))
            shim.socket.sendall(frames)
            for _ in range(500):
                shim.receive()


def watches(path: str) -> None:
    """As many watches as a connection may hold, on 8 connections, and nobody reads the events."""
    with contextlib.ExitStack() as stack:
        for _ in range(8):
            peer = stack.enter_context(_peer(path, "library"))
            for _ in range(256):
                peer.socket.sendall(peer.frame("watch"))
        _started()
        time.sleep(3600)


KINDS: dict[str, Callable[[str], None]] = {
    kind.__name__: kind
    for kind in (
        stalled_reader,
        stalled_shim,
        slow_writers,
        half_frames,
        three_bytes,
        giant_header,
        empty_maps,
        tiny_containers,
        long_strings,
        huge_saves,
        connections,
        idle_connections,
        queue,
        requests,
        garbage,
        watches,
    )
}


def _huge_frames(path: str, frame: Callable[[Peer], bytes], role: str = "library") -> None:
    """Send frames as fast as they are taken; connect again when cut off."""
    _started()
    while True:
        with contextlib.suppress(OSError), _peer(path, role) as peer:
            if role == "shim":
                peer.handshake()
            while True:
                peer.socket.sendall(frame(peer))
                peer.receive()


def _silent(path: str, said: bytes, count: int) -> None:
    held: list[socket.socket] = []
    while True:
        held += [_connect(path) for _ in range(count - len(held))]
        for stranger in held:
            with contextlib.suppress(OSError):
                stranger.sendall(said)
        _started()
        time.sleep(1)
        open_still = [stranger for stranger in held if not _has_ended(stranger)]
        for stranger in held:
            if stranger not in open_still:
                stranger.close()
        held = open_still


def _has_ended(stranger: socket.socket) -> bool:
    try:
        return stranger.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) != b"?"
    except BlockingIOError:
        return False
    except OSError:
        return True


def _connect(path: str) -> socket.socket:
    stranger = socket.socket(socket.AF_UNIX)
    stranger.connect(path)
    return stranger


@contextmanager
def _peer(path: str, role: str) -> Iterator[Peer]:
    peer = Peer(path, role)
    try:
        yield peer
    finally:
        peer.socket.close()


def _call(tool: str, **arguments: object) -> bytes:
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    return json.dumps(
        {**message, "params": {"name": tool, "arguments": arguments}}, separators=(",", ":")
    ).encode()


def _started() -> None:
    """Say so, once."""
    if not _has_started:
        _has_started.append(True)
        print("ready", flush=True)


_has_started: list[bool] = []


def main() -> int:
    kind, path = sys.argv[1:]
    while True:
        try:
            KINDS[kind](path)
        except (OSError, ValueError):  # refused or cut off: once more, from the beginning
            time.sleep(0.01)


if __name__ == "__main__":
    sys.exit(main())
