"""What became of every write of a workload, told by a fresh client and by the store's own log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcpstated.daemon import changes
from mcpstated.daemon.backends import reading
from mcpstated.daemon.backends.interface import Key
from mcpstated.daemon.maintenance.files import open_read_only
from mcpstated.daemon.maintenance.verify import verify
from mcpstated.protocol.paths import Paths
from mcpstated.protocol.store import HandleId
from support.mcp_client import McpClient, mcp_client
from support.workload import MAX_BYTES, OWN, SHARED, Workload, Written


@dataclass(frozen=True, slots=True)
class Aftermath:
    """What was found; all of it is empty if everything is as it must be."""

    lost: tuple[str, ...]
    """Values that were acknowledged and are not there."""
    doubled: tuple[str, ...]
    """Values that are there more than once, and handles that were made twice."""
    failed: tuple[str, ...]
    """Calls that were answered with an error, or not at all."""
    problems: tuple[str, ...]
    """Whatever else is wrong with the store."""

    @property
    def is_clean(self) -> bool:
        return not (self.lost or self.doubled or self.failed or self.problems)


async def aftermath_of(workload: Workload) -> Aftermath:
    """Look at the store when all writers have ended; a daemon must run, or may be started.

    Every acknowledged value must be in its handle once, those of one writer in their order; each value is
    one version; the served document is the one that the log leads to; and the store is sound.
    """
    calls = workload.calls
    lost: list[str] = []
    doubled: list[str] = []
    problems: list[str] = []
    async with mcp_client(workload.data_dir, environ=workload.environ, name="aftermath") as client:
        for handle in workload.handles:
            loaded = await client.tool("state_load", handle=handle, max_bytes=MAX_BYTES)
            values = loaded["state"]["l"]
            found = Counter(values)
            written = [call for call in calls if call.handle == handle and call.value is not None]
            lost += [
                str(call.value) for call in written if call.is_acknowledged and not found[str(call.value)]
            ]
            doubled += [value for value, count in found.items() if count > 1]
            problems += _problems_of(handle, values, loaded["version"], written)
            if read_log(workload.data_dir, handle) != (loaded["state"], loaded["version"]):
                problems.append(f"{handle}: what is served is not what its log leads to")
        for kind in (SHARED, OWN):
            doubled += await _handles_made_twice(client, kind, workload)
    verdict = verify(Path(Paths(str(workload.data_dir)).database))
    problems += [f"{problem.where}: {problem.what}" for problem in verdict.problems]
    failed = [
        f"{call.writer} {call.what}: {call.error or 'no answer'}"
        for call in calls
        if not call.is_acknowledged
    ]
    return Aftermath(tuple(lost), tuple(doubled), tuple(failed), tuple(problems))


def _problems_of(handle: str, values: Sequence[str], version: int, written: Sequence[Written]) -> list[str]:
    problems = []
    if version != 1 + len(values):
        problems.append(f"{handle}: version {version} with {len(values)} values")
    if strangers := set(values) - {call.value for call in written}:
        problems.append(f"{handle}: nobody wrote {sorted(strangers)[:5]}")
    for writer in {call.writer for call in written}:
        sent = [call.value for call in written if call.writer == writer]
        held = [value for value in values if value.startswith(f"{writer}-")]
        if held != [value for value in sent if value in set(held)]:
            problems.append(f"{handle}: the values of {writer} are not in their order")
    return problems


async def _handles_made_twice(client: McpClient, kind: str, workload: Workload) -> list[str]:
    made = sum(of_kind == kind for of_kind in workload.handles.values())
    total = (await client.tool("state_list", kind=kind, limit=1))["total"]
    return [f"{total} handles of kind {kind}, and {made} were asked for"] if total > made else []


def read_log(data_dir: Path, handle: str) -> tuple[Any, int]:
    """Return the document and the version that the newest checkpoint and the changes since lead to."""
    with open_read_only(Path(Paths(str(data_dir)).database)) as db:
        stored = reading.find(db, Key("agent", "local", HandleId(handle)), with_trash=False)
    assert stored is not None, f"{handle} is not in the store"
    state = changes.rebuild_version(stored)
    return state.document, state.info.version
