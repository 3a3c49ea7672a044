"""Ring 1: who is at the other end of a socket."""

from __future__ import annotations

import os
import socket

import pytest

from mcpstated.protocol.peers import peer_of


@pytest.mark.requirement("P5")
def test_the_kernel_names_the_peer() -> None:
    """Both ends ask it before they believe a byte."""
    left, right = socket.socketpair(socket.AF_UNIX)
    with left, right:
        for end in (left, right):
            peer = peer_of(end)
            assert peer.uid == os.getuid()
            assert peer.pid in (os.getpid(), 0)


@pytest.mark.requirement("P5")
def test_what_is_no_unix_socket_has_no_peer() -> None:
    """No answer must never be taken for an answer."""
    with socket.socket(socket.AF_INET) as inet:
        try:
            peer = peer_of(inet)
        except OSError:
            return
    assert peer.uid != os.getuid()
