"""What `status` answers: the daemon, its store, and who is connected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import trio

from mcpstated.protocol.messages import PROTOCOL_MAX

if TYPE_CHECKING:
    from mcpstated.daemon.backups import Backups
    from mcpstated.daemon.engine import Engine
    from mcpstated.daemon.sessions import Sessions
    from mcpstated.protocol.settings import DaemonSettings


@dataclass(frozen=True, slots=True)
class Identity:
    """What one run of a daemon is known by."""

    pid: int
    build: str
    instance: str
    started_at_unix: float


async def status(
    *,
    identity: Identity,
    settings: DaemonSettings,
    engine: Engine,
    sessions: Sessions,
    backups: Backups,
    now_unix: Callable[[], float],
) -> dict[str, object]:
    """Return the status as plain values for the wire; times are seconds since the epoch."""
    store = await engine.status()
    return {
        "daemon": {
            "pid": identity.pid,
            "version": identity.build,
            "protocol": PROTOCOL_MAX,
            "instance": identity.instance,
            "socket": settings.paths.socket,
            "data_dir": settings.paths.data_dir,
            "log": settings.paths.log,
            "started_at": identity.started_at_unix,
            "uptime_seconds": max(0.0, now_unix() - identity.started_at_unix),
        },
        "store": asdict(store),
        "backups": asdict(await trio.to_thread.run_sync(backups.state)),
        "sessions": [
            {
                "id": session.number,
                "role": session.hello.role,
                "pid": session.peer.pid or session.hello.pid,
                "user": session.hello.user or settings.default_user,
                "writer": session.hello.writer,
                "client": session.relay.client_name if session.relay is not None else "",
                "build": session.hello.build,
                "connected_at": session.connected_at_unix,
                "in_flight": session.in_flight,
                "requests": session.request_count,
            }
            for session in sessions
            if session.hello is not None
        ],
    }
