"""Look for input that the codec or the line readers do not survive, guided by the code that it reaches.

    python tests/long/fuzz.py --seconds 60 --corpus DIRECTORY

Needs atheris (`pip install atheris`); whatever else is given goes to libFuzzer. It ends with 1 at the first
input with an outcome that no reader names, and leaves that input as a file in the working directory.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

MAX_FRAME_BYTES = 4_096
MAX_LINE_BYTES = 256
MAX_INPUT_BYTES = 2_048


def targets() -> list[Callable[[bytes], None]]:
    """Return what is fuzzed; the first byte of an input chooses among them. Imported late, to be watched."""
    from mcpstated.daemon.envelope import Blank, Call, Malformed, Notice, Reply, error_line, read_line, unread
    from mcpstated.protocol.connection import Connection
    from mcpstated.protocol.messages import Hello, encode_message
    from mcpstated.protocol.salvage import salvage
    from mcpstated.protocol.violations import RemoteProtocolError
    from mcpstated.shim.lines import LineReader, Skipped
    from mcpstated.shim.skipped import answer_to_skipped

    def hello(role: str) -> Hello:
        return Hello(1, 2, [], role, "fuzz", bytes(16), "", "", 1)

    def drain(connection: Connection, data: bytes) -> None:
        step = 1 + data[0] % 64 if data else 1
        for start in range(0, len(data), step):
            connection.receive_data(data[start : start + step])
            try:
                while (message := connection.next_event()) is not None:
                    encode_message(message)
            except RemoteProtocolError:
                return

    def strangers_frames(data: bytes) -> None:
        drain(Connection("daemon", MAX_FRAME_BYTES), data)

    def shims_frames(data: bytes) -> None:
        connection = Connection("daemon", MAX_FRAME_BYTES)
        connection.receive_data(Connection("client").send(hello("shim")))
        drain(connection, data)

    def programs_frames(data: bytes) -> None:
        connection = Connection("daemon", MAX_FRAME_BYTES)
        connection.receive_data(Connection("client").send(hello("library")))
        drain(connection, data)

    def daemons_frames(data: bytes) -> None:
        connection = Connection("client", MAX_FRAME_BYTES)
        connection.send(hello("library"))
        drain(connection, data)

    def line(data: bytes) -> None:
        for envelope in (read_line(data), unread(data, "It was not read.")):
            assert isinstance(envelope, Call | Notice | Reply | Blank | Malformed)
            if isinstance(envelope, Malformed):
                assert b"\n" not in error_line(envelope.id, envelope.code, envelope.reason)

    def ends(data: bytes) -> None:
        id_, method = salvage(data[: len(data) // 2], data[len(data) // 2 :])
        assert id_ is None or type(id_) in (str, int)
        assert type(method) is str

    def clients_bytes(data: bytes) -> None:
        reader = LineReader(MAX_LINE_BYTES)
        middle = len(data) // 2
        found = reader.feed(data[:middle]) + reader.feed(data[middle:]) + reader.finish()
        for piece in found:
            if isinstance(piece, Skipped):
                answer_to_skipped(piece.head, piece.tail, MAX_LINE_BYTES)
            else:
                assert len(piece) <= MAX_LINE_BYTES
                assert b"\n" not in piece

    return [strangers_frames, shims_frames, programs_frames, daemons_frames, line, ends, clients_bytes]


def main() -> int:
    """Run as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=int, default=60, help="how long to look")
    parser.add_argument("--corpus", type=Path, help="where inputs that reach something new are kept")
    options, more = parser.parse_known_args()
    try:
        import atheris
    except ImportError:
        print("atheris is not installed: python -m pip install atheris (it has wheels for Linux only).")
        return 1
    with atheris.instrument_imports(include=["mcpstated.protocol", "mcpstated.daemon", "mcpstated.shim"]):
        found = targets()

    def one_input(data: bytes) -> None:
        if data:
            found[data[0] % len(found)](data[1:])

    arguments = [sys.argv[0], f"-max_total_time={options.seconds}", f"-max_len={MAX_INPUT_BYTES}", *more]
    if options.corpus is not None:
        options.corpus.mkdir(parents=True, exist_ok=True)
        arguments.append(str(options.corpus))
    atheris.Setup(arguments, one_input)
    atheris.Fuzz()  # leaves the process
    return 0


if __name__ == "__main__":
    sys.exit(main())
