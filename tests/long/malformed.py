"""Send a daemon a million malformed frames and lines, and look what that did to it.

    python tests/long/malformed.py --count 1000000

Most are lines of one connection, a quarter goes through a real shim, and meanwhile several processes send
broken frames, one a connection, as fast as connections are admitted. What was closed unheard is not counted.
Ends with 1 if a line got no answer, if the daemon died or does not answer a normal call, or if its memory
grew by 16 MiB or more after the warm-up. Linux only.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mcpstated.protocol.connection import Connection
from mcpstated.protocol.frames import encode_frame
from mcpstated.protocol.messages import (
    Deliver,
    Failure,
    Forward,
    Goodbye,
    Hello,
    Message,
    Request,
    Settled,
    encode_message,
)
from mcpstated.protocol.violations import RemoteProtocolError
from support.daemon_process import DaemonProcess, daemon_process
from support.shim_process import SHIM, shim_environment

MIB = 1024 * 1024
WARM_UP = 20_000
MAX_GROWTH_BYTES = 16 * MIB
BATCH = 500
FRAME_SENDERS = 8
FRAMES_PART, SHIM_PART = 0.04, 0.25
SILENCE_SECONDS = 60.0

LINES = [
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"state_load","arguments":{"handle":"h_1"}}}',
    b'{"jsonrpc":"2.0","id":"a","method":"resources/read","params":{"uri":"state://x"}}',
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}',
    b'{"jsonrpc":"2.0","id":7,"result":{"a":[1,2,{"b":null}]}}',
    b'{"jsonrpc":"2.0","id":8,"error":{"code":-1,"message":"\xc3\xa9"}}',
    b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]',
]
HUGE_LINES = [
    b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"x":' + b"[" * 120_000 + b"]" * 120_000 + b"}}",
    b'{"id":' + b"9" * 5_000 + b',"jsonrpc":"2.0","method":"tools/call"}',
    b'{"jsonrpc":"2.0","id":2,"params":{"x":"' + b'\\"' * 100_000,
    b"\xff" * 100_000,
]


def spoilt(chance: random.Random, data: bytes) -> bytes:
    """Return some bytes with one to three faults."""
    spoiling = bytearray(data)
    for _ in range(chance.randint(1, 3)):
        place = chance.randrange(len(spoiling) + 1)
        match chance.randrange(4):
            case 0:
                spoiling[place : place + 1] = chance.randbytes(1)
            case 1:
                del spoiling[place : place + chance.randint(1, 20)]
            case 2:
                spoiling[place:place] = chance.randbytes(chance.randint(1, 8))
            case _:
                del spoiling[place:]
    return bytes(spoiling)


def malformed_lines(chance: random.Random) -> Iterator[bytes]:
    """Give lines without end; a few of them are huge, and a few may still be good."""
    while True:
        if chance.randrange(2_000):
            line = spoilt(chance, chance.choice(LINES)).replace(b"\n", b" ")
        else:
            line = chance.choice(HUGE_LINES)
        if line.strip():  # a shim forwards no blank lines
            yield line


class Wire:
    """A greeted connection."""

    def __init__(self, path: str, role: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(SILENCE_SECONDS)
        self.socket.connect(path)
        self.connection = Connection("client")
        self.number = 0
        identity = os.urandom(16) if role == "shim" else b""
        self.socket.sendall(
            self.connection.send(Hello(1, 1, [], role, "test", identity, "", "", os.getpid()))
        )
        self.receive()

    def receive(self) -> Message:
        """Return the next message; an end of the connection is an error."""
        while (message := self.connection.next_event()) is None:
            data = self.socket.recv(MIB)
            if not data:
                raise ConnectionError("the daemon hung up")
            self.connection.receive_data(data)
        if isinstance(message, Goodbye):
            raise ConnectionError(message.text)
        return message

    def forward(self, lines: list[bytes]) -> Counter[str]:
        """Forward lines and return how many were answered, and how many were settled without an answer."""
        floor = self.number + 1
        self.number += len(lines)
        unsettled = set(range(floor, self.number + 1))
        messages = [Forward(seq, 0, floor, line) for seq, line in enumerate(lines, floor)]
        self.socket.sendall(b"".join(map(self.connection.send, messages)))
        counts: Counter[str] = Counter()
        while unsettled:
            message = self.receive()
            if isinstance(message, Deliver) and message.answers is not None:
                counts["lines answered"] += 1
                unsettled.remove(message.answers)
            elif isinstance(message, Settled):
                counts["lines settled"] += 1
                unsettled.remove(message.seq)
        return counts


class ShimPipe:
    """A real shim, driven in batches: a ping behind each says when all of it was taken."""

    def __init__(self, data_dir: Path) -> None:
        self.process = subprocess.Popen(
            SHIM,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=shim_environment(data_dir),
        )

    def say(self, lines: list[bytes]) -> Counter[str]:
        """Write lines and return how many were answered."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(b"\n".join([*lines, b'{"jsonrpc":"2.0","id":"batch","method":"ping"}', b""]))
        self.process.stdin.flush()
        for answered, line in enumerate(self.process.stdout):
            if json.loads(line).get("id") == "batch":
                return Counter(
                    {"shim's lines answered": answered, "shim's lines settled": len(lines) - answered}
                )
        raise ConnectionError("the shim ended")

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


def send_frames(path: str, seed: int, count: int, results: multiprocessing.Queue[Counter[str]]) -> None:
    """Send one broken frame over each of many connections, half of them behind a hello."""
    chance = random.Random(seed)
    hello = Connection("client").send(Hello(1, 1, [], "library", "test", b"", "", "", 1))
    payload = encode_message(Request(1, "load", {"handle": "h_1"}), 1)
    counts: Counter[str] = Counter()
    while counts["frames"] < count:
        frame = spoilt(
            chance, chance.choice([encode_frame(payload), hello, encode_frame(spoilt(chance, payload))])
        )
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(SILENCE_SECONDS)
            try:
                sock.connect(path)
                sock.sendall(hello + frame if chance.randrange(2) else frame)
                sock.shutdown(socket.SHUT_WR)
                has_answer = False
                while data := sock.recv(65_536):
                    has_answer = has_answer or bool(data)
            except TimeoutError:
                counts["frames without an end"] += 1
            except OSError:
                counts["refused unread"] += 1
                time.sleep(0.01)
            else:
                counts["frames"] += 1
                counts["frames told why"] += has_answer
    results.put(counts)


def run_lines(wire: Wire, shim: ShimPipe, chance: random.Random, *, count: int) -> Counter[str]:
    """Send lines over both, one after the other: whoever is alone need not wait for its share."""
    lines = malformed_lines(chance)
    counts: Counter[str] = Counter()
    through_shim = int(count * SHIM_PART)
    for left, send in ((count - through_shim, wire.forward), (through_shim, shim.say)):
        for start in range(0, left, BATCH):
            counts += send([next(lines) for _ in range(min(BATCH, left - start))])
    return counts


def is_served(path: str) -> bool:
    """Tell whether a normal call is answered."""
    wire = Wire(path, "library")
    wire.socket.sendall(wire.connection.send(Request(1, "mint", {"kind": "after", "state": "{}"})))
    message = wire.receive()
    return not isinstance(message, Failure)


def run(daemon: DaemonProcess, *, count: int, seed: int) -> int:
    """Do it, print what happened, and return the exit code."""
    chance = random.Random(seed)
    frames = int(count * FRAMES_PART)
    results: multiprocessing.Queue[Counter[str]] = multiprocessing.Queue()
    wire, shim = Wire(daemon.socket, "shim"), ShimPipe(daemon.data_dir)
    counts: Counter[str] = Counter()
    began = time.monotonic()
    try:
        counts += run_lines(wire, shim, chance, count=min(WARM_UP, count - frames))
        before = daemon.memory_bytes()
        print(f"{sum(counts.values()):,} to warm up; the daemon has {before / MIB:.1f} MiB", flush=True)
        senders = [
            multiprocessing.Process(
                target=send_frames, args=(daemon.socket, seed + n, frames // FRAME_SENDERS, results)
            )
            for n in range(FRAME_SENDERS)
        ]
        for sender in senders:
            sender.start()
        counts += run_lines(wire, shim, chance, count=max(0, count - frames - WARM_UP))
        for _ in senders:
            counts += results.get()
        for sender in senders:
            sender.join()
        lives, served = daemon.is_alive, daemon.is_alive and is_served(daemon.socket)
    except (OSError, RemoteProtocolError) as error:
        print(f"failed after {sum(counts.values()):,}: {error!r}; the daemon lives: {daemon.is_alive}")
        return 1
    finally:
        shim.end()
    growth = daemon.memory_bytes() - before
    seconds = time.monotonic() - began
    for what, number in counts.items():
        print(f"{number:>12,} {what}")
    heard = counts["frames"] + sum(number for what, number in counts.items() if "lines" in what)
    print(f"{heard:,} in {seconds:.0f} s, {heard / seconds:,.0f} a second")
    print(f"the daemon lives: {lives}; answers a normal call: {served}")
    print(f"its memory grew by {growth / MIB:.1f} MiB")
    is_fine = lives and served and growth < MAX_GROWTH_BYTES and not counts["frames without an end"]
    return 0 if is_fine else 1


def main() -> int:
    """Run as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--count", type=int, default=1_000_000, help="how many frames and lines together")
    parser.add_argument("--seed", type=int, default=1, help="the same seed makes the same lines")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="state-", dir="/tmp") as directory:
        with daemon_process(Path(directory)) as daemon:
            return run(daemon, count=options.count, seed=options.seed)


if __name__ == "__main__":
    sys.exit(main())
