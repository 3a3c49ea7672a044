"""The Unix socket: bound where clients look for it, removed only if it is dead or ours.

The socket is 0600 from its first moment, by umask. Whoever connects is looked
at by the kernel's credentials before a byte is read.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
import stat
from collections.abc import Awaitable, Callable

import trio

from mcpstated.daemon.logs import Level, log_event
from mcpstated.protocol.directories import make_private_directory
from mcpstated.protocol.errors import DaemonUnavailable
from mcpstated.protocol.peers import Peer, peer_of

log = logging.getLogger("mcpstated.listener")

_BACKLOG = 512
_CAPACITY_ERRNOS = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS}
_CAPACITY_PAUSE_SECONDS = 0.1
_REFUSED_PAUSE_SECONDS = 0.001
"""How long nothing is accepted after a connection that is not served: a flood must not use up the loop."""
_QUIET_SECONDS = 30.0
"""While descriptors run out, or somebody connects without end, one line in this time is enough."""

Handler = Callable[[trio.socket.SocketType, Peer], Awaitable[None]]


class Listener:
    """A listening socket at a path.

    Args:
        path: Where clients connect.
        handle: Serves one connection and closes its socket; its faults are its own.
        admit: Says whether one more connection of a peer is served now; if not, it is closed without a word.
        max_connections: Above it connections are closed without a word: they have not even said hello.
    """

    def __init__(
        self,
        path: str,
        handle: Handler,
        *,
        admit: Callable[[Peer], bool] = lambda _peer: True,
        max_connections: int = 4096,
    ) -> None:
        self.path = path
        self._handle = handle
        self._admit = admit
        self._max_connections = max_connections
        self._socket: trio.socket.SocketType | None = None
        self._identity: tuple[int, int] | None = None
        self._nursery: trio.Nursery | None = None
        self._accepting = trio.CancelScope()
        self._logged_at: dict[str, float] = {}
        """When a thing that may happen very often was logged last."""
        self.connections = 0
        """Connections that are open now, those that have not said hello included."""

    def bind(self) -> None:
        """Listen at the path; a dead socket there is removed, anything else is refused.

        Call it only while holding the daemon's lock: then a socket nobody answers at is nobody's.

        Raises:
            DaemonUnavailable: Something else is at the path, or it cannot be bound.
        """
        make_private_directory(os.path.dirname(self.path))
        self._remove_dead_socket()
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        umask = os.umask(0o177)  # a socket is made with all bits: 077 would leave it 0700
        try:
            listening.bind(self.path)
            listening.listen(_BACKLOG)
            status = os.stat(self.path, follow_symlinks=False)
        except OSError as error:
            listening.close()
            raise DaemonUnavailable(
                f"{self.path} cannot be bound: {error.strerror}.", hint=self.path
            ) from error
        finally:
            os.umask(umask)
        if self._socket is not None:
            self._socket.close()
        self._socket = trio.socket.from_stdlib_socket(listening)
        self._identity = (status.st_dev, status.st_ino)

    @property
    def is_in_place(self) -> bool:
        """True if the path still names the socket that was bound."""
        try:
            status = os.stat(self.path, follow_symlinks=False)
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == self._identity

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Accept until `close`, then return; connections go on until cancelled or ended."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            with self._accepting:
                await self._accept_forever()

    def accept_waiting(self) -> bool:
        """Serve the connections that wait in the backlog; True if there was one."""
        assert self._socket is not None
        found = False
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(self._socket.fileno())) as twin:
            while True:
                accepted, _address = twin.accept()
                self._start(trio.socket.from_stdlib_socket(accepted))
                found = True
        return found

    def unlink(self) -> None:
        """Remove our socket from its path; nobody new can connect, the backlog stays."""
        if self.is_in_place:
            with contextlib.suppress(OSError):
                os.unlink(self.path)

    def close(self) -> None:
        """Accept nothing more."""
        self._accepting.cancel()
        if self._socket is not None:
            self._socket.close()

    async def _accept_forever(self) -> None:
        while True:
            assert self._socket is not None
            listening = self._socket
            try:
                accepted, _address = await listening.accept()
            except OSError as error:
                if error.errno in _CAPACITY_ERRNOS:
                    self._log_capacity(error.errno)
                    await trio.sleep(_CAPACITY_PAUSE_SECONDS)
                elif listening is self._socket:
                    log_event(
                        log, "debug", "accept failed", error=errno.errorcode.get(error.errno or 0, "unknown")
                    )
                    await trio.sleep(_CAPACITY_PAUSE_SECONDS)
            except trio.ClosedResourceError:
                if listening is self._socket:
                    return
            else:
                if not self._start(accepted):
                    await trio.sleep(_REFUSED_PAUSE_SECONDS)

    def _start(self, accepted: trio.socket.SocketType) -> bool:
        """Serve a connection, or close it and return False."""
        assert self._nursery is not None
        peer = self._peer_to_serve(accepted)
        if peer is None:
            accepted.close()
            return False
        self.connections += 1
        self._nursery.start_soon(self._serve_one, accepted, peer)
        return True

    def _peer_to_serve(self, accepted: trio.socket.SocketType) -> Peer | None:
        """Return who is at the other end, or None if it is not served."""
        if self.connections >= self._max_connections:
            self._log_capacity(errno.EMFILE)
            return None
        try:
            peer = peer_of(accepted)  # type: ignore[arg-type]  # getsockopt is all that is used
        except OSError as error:  # it hung up already, as a probe does
            log_event(log, "debug", "peer vanished", error=type(error).__name__)
            return None
        if peer.uid != os.getuid():
            log_event(log, "warning", "peer of another user refused", peer_uid=peer.uid, peer_pid=peer.pid)
            return None
        if not self._admit(peer):
            self._log_rarely("warning", "connections of a process refused", peer_pid=peer.pid)
            return None
        return peer

    async def _serve_one(self, accepted: trio.socket.SocketType, peer: Peer) -> None:
        try:
            await self._handle(accepted, peer)
        except Exception:  # the top handler of a session: its fault ends it and nothing else
            log.exception("session failed")
        finally:
            accepted.close()
            self.connections -= 1

    def _log_capacity(self, number: int) -> None:
        self._log_rarely("error", "connections cannot be accepted", error=errno.errorcode[number])

    def _log_rarely(self, level: Level, event: str, **fields: object) -> None:
        now = trio.current_time()
        if now - self._logged_at.get(event, -_QUIET_SECONDS) >= _QUIET_SECONDS:
            self._logged_at[event] = now
            log_event(log, level, event, **fields)

    def _remove_dead_socket(self) -> None:
        try:
            status = os.stat(self.path, follow_symlinks=False)
        except FileNotFoundError:
            return
        if not stat.S_ISSOCK(status.st_mode):
            raise DaemonUnavailable(
                f"{self.path} is not a socket, so it is left alone; move it away to let the daemon start.",
                hint=self.path,
            )
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.setblocking(False)
            try:
                probe.connect(self.path)
            except ConnectionRefusedError:
                os.unlink(self.path)
                return
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EINPROGRESS):
                    raise DaemonUnavailable(
                        f"{self.path} cannot be probed: {error.strerror}.", hint=self.path
                    ) from error
        raise DaemonUnavailable(f"Somebody already listens at {self.path}.", hint=self.path)
