"""Ring 1: writing to the client without ever waiting and without changing its descriptors."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcpstated.shim.output import Output


@pytest.fixture(autouse=True)
def _no_hang() -> Iterator[None]:
    """Turn a write that waits, which is what these tests are about, into a failure."""

    def fail(_number: int, _frame: object) -> None:
        pytest.fail("a write waited for the reader")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(params=["pipe", "socket"])
def ends(request: pytest.FixtureRequest) -> Iterator[tuple[int, int]]:
    """The reading and the writing end of what a client may use as standard output."""
    if request.param == "pipe":
        reading, writing = os.pipe()
    else:
        reading, writing = (end.detach() for end in socket.socketpair())
    yield reading, writing
    for fd in (reading, writing):
        try:
            os.close(fd)
        except OSError:
            continue  # the test closed it


@pytest.mark.requirement("C05", "P7")
def test_a_reader_that_stands_still_does_not_stop_the_writer(ends: tuple[int, int]) -> None:
    """C05: a flush writes what fits and returns; the rest waits in order."""
    reading, writing = ends
    flags = fcntl.fcntl(writing, fcntl.F_GETFL)
    output = Output(os.dup(writing))
    lines = [bytes([65 + number]) * 300_000 for number in range(4)]
    for line in lines:
        output.put(line)
    taken = output.flush()
    while written := output.flush():
        taken += written
    assert 0 < taken < 1_200_000

    received = b""
    while len(received) < 1_200_004:
        received += os.read(reading, 1024 * 1024)
        output.flush()
    assert received == b"".join(line + b"\n" for line in lines)
    assert output.pending_bytes == 0
    output.close()
    assert fcntl.fcntl(writing, fcntl.F_GETFL) == flags


@pytest.mark.requirement("C17")
def test_a_dead_reader_is_noticed_and_not_an_error(ends: tuple[int, int]) -> None:
    """C17: a client that is gone is the normal end of a shim."""
    reading, writing = ends
    output = Output(writing)
    os.close(reading)
    output.put(b"line")
    assert output.flush() == 0
    assert output.is_dead
    output.close()


def test_a_descriptor_that_does_not_block_is_left_that_way(ends: tuple[int, int]) -> None:
    """The client may have made its pipe non-blocking; a full one is still no error."""
    _reading, writing = ends
    os.set_blocking(writing, False)
    output = Output(os.dup(writing))
    output.put(b"x" * 2_000_000)
    while output.flush():
        pass
    assert not output.is_dead
    assert output.pending_bytes > 0
    assert not os.get_blocking(writing)
    output.close()


def test_a_file_takes_everything(tmp_path: Path) -> None:
    """C17: standard output is a file in many scripts."""
    path = tmp_path / "out"
    output = Output(os.open(path, os.O_WRONLY | os.O_CREAT))
    output.put(b"a" * 1_000_000)
    while output.flush():
        pass
    assert output.pending_bytes == 0
    output.close()
    assert path.read_bytes() == b"a" * 1_000_000 + b"\n"


@pytest.mark.requirement("C33")
def test_a_line_goes_out_as_one_line() -> None:
    """C33: a raw newline inside a line can only be white space of JSON; it must not end the line."""
    reading, writing = os.pipe()
    output = Output(os.dup(writing))
    output.put(b'{"a":\n1}')
    output.flush()
    output.close()
    assert os.read(reading, 100) == b'{"a": 1}\n'
    os.close(reading)
    os.close(writing)
