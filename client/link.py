"""One connection to a daemon that runs: opened, checked, greeted.

Above it is `launch`, which starts a daemon where none answers; below it the sans-IO `Connection`.
Nothing here reads or writes anything but the socket. The shim imports this module, so it must stay
free of typing, dataclasses and whatever imports them.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import stat
import time

from mcpstated import __version__
from mcpstated.protocol.connection import Connection
from mcpstated.protocol.errors import DaemonUnavailable, InvalidInput
from mcpstated.protocol.messages import (
    BROKEN,
    PROTOCOL_MAX,
    PROTOCOL_MIN,
    SKEW,
    STOPPING,
    UPGRADING,
    Goodbye,
    Hello,
    Welcome,
)
from mcpstated.protocol.peers import peer_of
from mcpstated.protocol.violations import RemoteProtocolError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mcpstated.protocol.messages import Message
    from mcpstated.protocol.paths import Paths

SLICE_SECONDS = 0.05
"""No wait for a descriptor is longer without `on_wait` being called."""
_RECEIVE_BYTES = 65536


class DaemonNotRunning(DaemonUnavailable):
    """Nobody listens at the socket. Details: `hint`."""


class DaemonNotReady(DaemonUnavailable):
    """Somebody listens but does not serve now: busy, starting or leaving. Trying again may help."""


class VersionSkew(DaemonUnavailable):
    """The two sides have no protocol version in common; the message names both and the remedy."""


class _HelloNotUnderstood(DaemonUnavailable):
    """The daemon did not take our hello for one."""


class DaemonLink:
    """A greeted connection; `sock` does not block."""

    __slots__ = ("connection", "sock", "welcome")

    def __init__(self, sock: socket.socket, connection: Connection, welcome: Welcome) -> None:
        self.sock = sock
        self.connection = connection
        """May already hold messages that came right behind the welcome."""
        self.welcome = welcome


def make_hello(role: str, *, environ: Mapping[str, str], shim_id: bytes = b"") -> Hello:
    """Return the hello of this process.

    Args:
        role: `shim`, `library` or `cli`.
        environ: MCPSTATED_USER and MCPSTATED_WRITER (or mcpstate's names for them) say for whom.
        shim_id: 16 random bytes, the same for all connections of one client; a program that will send nothing
            again may leave it empty.

    Raises:
        InvalidInput: The user's name is not text.
    """
    user = environ.get("MCPSTATED_USER") or environ.get("MCPSTATE_USER") or ""
    writer = environ.get("MCPSTATED_WRITER") or environ.get("MCPSTATE_WRITER") or ""
    try:
        user.encode()
    except UnicodeEncodeError:
        raise InvalidInput("MCPSTATED_USER must be UTF-8.", field="MCPSTATED_USER") from None
    writer = writer.encode("utf-8", "surrogateescape").decode("utf-8", "replace")  # a label: any text will do
    return Hello(PROTOCOL_MIN, PROTOCOL_MAX, [], role, __version__, shim_id, user, writer, os.getpid())


def connect(
    paths: Paths, hello: Hello, *, timeout_seconds: float, on_wait: Callable[[], None] | None = None
) -> DaemonLink:
    """Connect to the daemon that runs, and exchange hello and welcome.

    Args:
        timeout_seconds: How long the daemon may take to greet.
        on_wait: Called at least four times a second while waiting; what it raises ends the attempt.

    Raises:
        DaemonNotRunning: There is no socket, or it refused.
        DaemonNotReady: It took the connection but did not greet, or is about to leave.
        VersionSkew: The two sides speak no common version.
        DaemonUnavailable: Something else is in the socket's place, or the daemon refused this client.
    """
    deadline = time.monotonic() + timeout_seconds
    try:
        return _connect(paths, hello, deadline, on_wait)
    except _HelloNotUnderstood:
        if hello.role == "shim" or not hello.shim_id or hello.protocol_min > 1:
            raise
        return _connect(paths, _hello_of_version_1(hello), deadline, on_wait)


def _hello_of_version_1(hello: Hello) -> Hello:
    """Return the hello as a daemon of version 1 wants it, to which only shims say who they are."""
    return Hello(1, 1, hello.capabilities, hello.role, hello.build, b"", hello.user, hello.writer, hello.pid)


def _connect(paths: Paths, hello: Hello, deadline: float, on_wait: Callable[[], None] | None) -> DaemonLink:
    sock = _open(paths.socket)
    try:
        peer = peer_of(sock)
        if peer.uid != os.getuid():
            raise DaemonUnavailable(
                f"{paths.socket} is served by another user (uid {peer.uid}), so it is not used.",
                hint="Check MCPSTATED_SOCKET and MCPSTATED_DATA_DIR.",
            )
        connection = Connection("client")
        welcome = _greet(sock, connection, hello, deadline, on_wait)
        if welcome is None:
            who = f"The daemon (pid {peer.pid})" if peer.pid else "The daemon"
            raise DaemonNotReady(f"{who} did not greet in time.")
        _adopt(connection, hello, welcome)
    except BaseException as error:
        sock.close()
        if isinstance(error, OSError):
            raise DaemonNotReady(f"The connection to the daemon broke: {error.strerror}.") from error
        if isinstance(error, RemoteProtocolError):
            raise DaemonNotReady(f"What listens at {paths.socket} speaks differently: {error}.") from error
        raise
    return DaemonLink(sock, connection, welcome)


def _open(path: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.setblocking(False)
    try:
        sock.connect(path)
    except OSError as error:
        sock.close()
        raise _explained(path, error) from error
    return sock


def _explained(path: str, error: OSError) -> DaemonUnavailable:
    """Return what a failed connect means: absent, busy, or something that is left alone."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        mode = None
    if mode is not None and not stat.S_ISSOCK(mode):
        return DaemonUnavailable(
            f"{path} is not a socket, so it is left alone; move it away to let the daemon start.", hint=path
        )
    if error.errno in (errno.ENOENT, errno.ECONNREFUSED):
        return DaemonNotRunning("The daemon is not running.", hint=f"It would listen at {path}.")
    if error.errno in (errno.EAGAIN, errno.EINPROGRESS):
        return DaemonNotReady("The daemon has more connections waiting than it can take.", hint=path)
    return DaemonUnavailable(f"{path} cannot be connected to: {error.strerror or error}.", hint=path)


def _greet(
    sock: socket.socket,
    connection: Connection,
    hello: Hello,
    deadline: float,
    on_wait: Callable[[], None] | None,
) -> Welcome | None:
    """Return the welcome, or None if none came before the deadline."""
    unsent = connection.send(hello)
    poller = select.poll()
    while True:
        poller.register(sock, select.POLLIN | (select.POLLOUT if unsent else 0))
        left = deadline - time.monotonic()
        events = poller.poll(max(0.0, min(left, SLICE_SECONDS)) * 1000)
        if not events:
            if left <= 0:
                return None
            if on_wait is not None:
                on_wait()
            continue
        if unsent:
            try:
                unsent = unsent[sock.send(unsent) :]
            except BlockingIOError:
                pass
            except OSError:
                unsent = b""  # it hung up; why may still be there to be read
        try:
            data = sock.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            continue
        if not data:
            raise DaemonNotReady("The daemon hung up before it greeted.")
        connection.receive_data(data)
        message = connection.next_event()
        if message is not None:
            return _welcome_in(message)


def _welcome_in(message: Message) -> Welcome:
    if isinstance(message, Welcome):
        return message
    assert isinstance(message, Goodbye)  # the connection lets nothing else come first
    if message.reason == SKEW:
        raise VersionSkew(message.text, hint="Run: mcpstated restart")
    if message.reason == BROKEN:
        raise _HelloNotUnderstood(message.text)
    if message.reason in (STOPPING, UPGRADING):
        raise DaemonNotReady(message.text)
    raise DaemonUnavailable(message.text or "The daemon refused the connection.")


def _adopt(connection: Connection, hello: Hello, welcome: Welcome) -> None:
    """Check the welcome and take over the limit that it names."""
    if not hello.protocol_min <= welcome.protocol <= hello.protocol_max:
        raise VersionSkew(
            f"This program ({hello.build}) speaks protocol {hello.protocol_min} to {hello.protocol_max}, "
            f"the running daemon ({welcome.build}) {welcome.protocol}. "
            "Run `mcpstated restart` with the newer installation.",
            hint="Run: mcpstated restart",
        )
    limit = welcome.limits.get("max_frame_bytes")
    if type(limit) is int and limit > 0:
        connection.set_max_frame_bytes(limit)
