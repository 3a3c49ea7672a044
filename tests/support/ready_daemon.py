"""A program that stands in for the daemon where only its start matters: one flock, one socket, echo.

    python ready_daemon.py [--act serve|fail|die|mute|leave] --data-dir DIR --ready-fd N

Each start is written into DIR/starts as one line of JSON with what the process found itself in.
`serve` answers every forwarded line with the same line; `fail` reports a reason; `die` ends without a
word; `mute` never reports; `leave` reports and ends.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import signal
import socket
import sys
import threading
from pathlib import Path

from mcpstated.protocol.connection import Connection
from mcpstated.protocol.messages import Deliver, Forward, Hello, Welcome


def surroundings() -> dict[str, object]:
    """Return what was inherited."""
    umask = os.umask(0o077)
    os.umask(umask)
    descriptors = {}
    for fd in range(256):
        try:
            os.fstat(fd)
        except OSError:
            continue
        link = Path(f"/proc/self/fd/{fd}")
        descriptors[fd] = str(link.readlink()) if link.is_symlink() else "?"
    return {
        "pid": os.getpid(),
        "ppid": os.getppid(),
        "pgid": os.getpgid(0),
        "sid": os.getsid(0),
        "cwd": str(Path.cwd()),
        "umask": umask,
        "arguments": sys.argv[1:],
        "environ": dict(os.environ),
        "descriptors": descriptors,
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "ignored": sorted(
            number
            for number in signal.valid_signals()
            if signal.getsignal(number) is signal.SIG_IGN
            and number not in (signal.SIGPIPE, signal.SIGXFSZ)  # Python itself ignores these
        ),
    }


def serve_connection(accepted: socket.socket) -> None:
    connection = Connection("daemon")
    with accepted:
        while data := accepted.recv(65536):
            connection.receive_data(data)
            while (message := connection.next_event()) is not None:
                if isinstance(message, Hello):
                    limits = {"max_frame_bytes": connection.max_frame_bytes}
                    answer: Welcome | Deliver = Welcome(1, [], "ready", "instance", os.getpid(), limits)
                else:
                    assert isinstance(message, Forward)
                    answer = Deliver(message.line, message.seq)
                accepted.sendall(connection.send(answer))


def main() -> int:
    found = surroundings()
    parser = argparse.ArgumentParser()
    parser.add_argument("--act", default="serve")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--ready-fd", type=int)
    options = parser.parse_args()
    data_dir: Path = options.data_dir
    with (data_dir / "starts").open("a") as stream:
        stream.write(json.dumps(found) + "\n")
    if options.act == "die":
        return 1
    if options.act == "fail":
        os.write(options.ready_fd, b"failed: out of luck\n")
        return 1
    lock = os.open(data_dir / "daemon.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.write(options.ready_fd, b"failed: another one holds the lock\n")
        return 1
    os.pwrite(lock, b"pid=%d\n" % os.getpid(), 0)
    path = data_dir / "daemon.sock"
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listening:
        if options.act == "mute":
            signal.pause()
        listening.bind(str(path))
        listening.listen(64)
        os.write(options.ready_fd, b"ready\n")
        os.close(options.ready_fd)
        while options.act == "serve":
            accepted, _address = listening.accept()
            threading.Thread(target=serve_connection, args=(accepted,), daemon=True).start()
    return 0


if __name__ == "__main__":
    sys.exit(main())
