"""Who is at the other end of a Unix socket, as the kernel says.

Both ends look: the daemon refuses a peer of another user, and a client refuses a daemon of another
user, before a byte of either is believed. The uid is all that is proved; the `user` in a hello is a label
that the peer chose, within that uid.
"""

from __future__ import annotations

import socket
import struct
import sys

_IS_LINUX = sys.platform == "linux"


class Peer:
    """The process at the other end: `uid`, and `pid` (0 where the system does not tell)."""

    __slots__ = ("pid", "uid")

    def __init__(self, uid: int, pid: int) -> None:
        self.uid = uid
        self.pid = pid


def peer_of(connected: socket.socket) -> Peer:
    """Return the peer of a connected Unix socket.

    Raises:
        OSError: The socket is not connected, or the system has no way to tell.
    """
    if _IS_LINUX:
        pid, uid, _gid = struct.unpack("iII", connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        return Peer(uid, pid)
    # struct xucred of <sys/ucred.h>: version, uid, number of groups, groups; SOL_LOCAL is 0.
    local, peercred, peerpid = 0, 1, 2
    _version, uid = struct.unpack_from("II", connected.getsockopt(local, peercred, 76))
    try:
        (pid,) = struct.unpack("i", connected.getsockopt(local, peerpid, 4))
    except OSError:
        pid = 0
    return Peer(uid, pid)
