"""Run an earlier revision beside this one, both ways, under load, and count what that costs the clients.

    python tests/long/skew.py --revision db6e5e0 --shims 16

Needs git. Ends with 1 if a call failed, or if anything was lost, doubled or numbered with a gap.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import trio

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mcpstated.daemon.backends.schema import SCHEMA_VERSION
from mcpstated.launch import connect, make_hello
from mcpstated.protocol.messages import PROTOCOL_MAX
from mcpstated.protocol.paths import Paths
from support.layout import lay_out
from support.load import Load, load_on
from support.mcp_client import daemon_pid, mcp_client, starting_environment
from support.old_package import old_package
from support.reaper import kill_daemons_below

SCENE_SECONDS = 90.0
MCPSTATED = [sys.executable, "-m", "mcpstated.cli"]


class Failed(Exception):
    """A scene did not end as it must; the text says how."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Two installations and a store."""

    data_dir: Path
    old_layout: Path
    new_layout: Path
    shims: int

    def environ(self, layout: Path) -> dict[str, str]:
        """Return the environment in which `mcpstated` is that of an installation."""
        return starting_environment(self.data_dir, PYTHONPATH=str(layout))

    @property
    def old(self) -> dict[str, str]:
        return self.environ(self.old_layout)

    @property
    def new(self) -> dict[str, str]:
        return self.environ(self.new_layout)

    async def command(self, environ: dict[str, str], *words: str, exit_code: int = 0) -> str:
        """Run `mcpstated` of an installation, and return what it said."""
        done = await trio.run_process(
            [*MCPSTATED, *words], env=environ, capture_stdout=True, capture_stderr=True, check=False
        )
        said = (done.stdout + done.stderr).decode()
        if done.returncode != exit_code:
            raise Failed(f"mcpstated {' '.join(words)} ended with {done.returncode}: {said}")
        return said

    def expect_daemon(self, protocol: int) -> None:
        """Fail unless the daemon that runs speaks that version as its newest."""
        link = connect(Paths(str(self.data_dir)), make_hello("cli", environ={}), timeout_seconds=10)
        link.sock.close()
        if link.welcome.protocol != protocol:
            raise Failed(f"the daemon speaks {link.welcome.protocol}, not {protocol}")

    def kill_daemon(self) -> None:
        os.kill(daemon_pid(self.data_dir), signal.SIGKILL)

    @property
    def store(self) -> Path:
        return self.data_dir / "state.db"

    @property
    def copy(self) -> Path:
        return self.data_dir / f"state.db.before-v{SCHEMA_VERSION}"


async def old_clients_go_on_with_a_new_daemon(stage: Stage, protocol: int) -> Load:
    """The old daemon is replaced by a new one under old clients, which go on, through another restart too."""
    await stage.command(stage.old, "restart")
    async with load_on(stage.data_dir, shims=stage.shims, environ=stage.old) as load:
        stage.expect_daemon(protocol)
        for _ in range(3):
            await stage.command(stage.new, "restart")
            stage.expect_daemon(PROTOCOL_MAX)
            await load.everybody_has_called(3)
    return load


async def new_clients_go_on_with_an_old_daemon(stage: Stage, protocol: int) -> Load:
    """New clients work with the old daemon that still runs, and move to the new one when it is replaced."""
    await stage.command(stage.old, "restart")
    async with load_on(stage.data_dir, shims=stage.shims, environ=stage.new) as load:
        await load.everybody_has_called(3)
        stage.expect_daemon(protocol)
        await stage.command(stage.new, "restart")
        stage.expect_daemon(PROTOCOL_MAX)
        await load.everybody_has_called(3)
    return load


async def an_old_daemon_that_dies_is_followed_by_a_new_one(stage: Stage, protocol: int) -> Load:
    """New clients lose the old daemon in the middle of calls: what it had applied is not applied again."""
    await stage.command(stage.old, "restart")
    async with load_on(stage.data_dir, shims=stage.shims, environ=stage.new) as load:
        stage.expect_daemon(protocol)
        for _ in range(3):
            stage.kill_daemon()
            await load.everybody_has_called(3)
            stage.expect_daemon(PROTOCOL_MAX)
    return load


async def an_installation_is_replaced_under_running_clients(stage: Stage, protocol: int) -> Load:
    """The files are exchanged, as an upgrade does: old clients start the new daemon when theirs dies."""
    current = stage.data_dir / "current"
    current.symlink_to(stage.old_layout)
    environ = stage.environ(current)
    async with load_on(stage.data_dir, shims=stage.shims, environ=environ) as load:
        stage.expect_daemon(protocol)
        current.unlink()
        current.symlink_to(stage.new_layout)
        for _ in range(3):
            stage.kill_daemon()
            await load.everybody_has_called(3)
            stage.expect_daemon(PROTOCOL_MAX)
    return load


async def a_downgrade_with_the_copy_goes_on_with_the_old_store(stage: Stage, protocol: int) -> Load:
    """Without the copy the old program refuses; with it, it has the store as it was, for new clients too."""
    await stage.command(stage.old, "restart")
    async with load_on(stage.data_dir, shims=2, environ=stage.old) as before:
        await before.everybody_has_called(3)
    await stage.command(stage.new, "restart")
    async with mcp_client(stage.data_dir, environ=stage.new) as client:
        await client.append(before.handle, "after the upgrade")
    await stage.command(stage.new, "stop")
    said = await stage.command(stage.old, "list", exit_code=1)
    if f"schema version {SCHEMA_VERSION} and this program knows versions up to" not in said:
        raise Failed(f"the old program says only: {said}")
    stage.copy.replace(stage.store)
    await stage.command(stage.old, "restart")
    async with load_on(stage.data_dir, shims=stage.shims, environ=stage.new) as load:
        stage.expect_daemon(protocol)
    async with mcp_client(stage.data_dir, environ=stage.new) as client:
        before.wrong += await before.account(client)
    load.wrong += before.wrong
    return load


SCENES: tuple[Callable[[Stage, int], Awaitable[Load]], ...] = (
    old_clients_go_on_with_a_new_daemon,
    new_clients_go_on_with_an_old_daemon,
    an_old_daemon_that_dies_is_followed_by_a_new_one,
    an_installation_is_replaced_under_running_clients,
    a_downgrade_with_the_copy_goes_on_with_the_old_store,
)


async def play(scene: Callable[[Stage, int], Awaitable[Load]], stage: Stage, protocol: int) -> bool:
    """Play one scene, print what happened, and tell whether all was well."""
    began = trio.current_time()
    try:
        with trio.fail_after(SCENE_SECONDS):
            load = await scene(stage, protocol)
    except (Failed, trio.TooSlowError, AssertionError, BaseExceptionGroup) as error:
        print(f"{scene.__name__}: {error!r}", flush=True)
        return False
    print(
        f"{scene.__name__}: {load.calls:,} calls, {len(load.failed)} failed, slowest "
        f"{load.slowest_seconds:.2f} s, {trio.current_time() - began:.0f} s in all",
        flush=True,
    )
    for sentence in load.wrong[:10]:
        print(f"  {sentence}")
    return not load.wrong


def main() -> int:
    """Run as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--revision", default="db6e5e0", help="what to run beside this one")
    parser.add_argument("--protocol", type=int, default=1, help="the newest version that it speaks")
    parser.add_argument("--shims", type=int, default=16, help="clients over stdio")
    parser.add_argument("--scene", default="", help="play only scenes whose name holds this")
    options = parser.parse_args()
    is_well = True
    with tempfile.TemporaryDirectory(prefix="skew-", dir="/tmp") as directory:
        top = Path(directory)
        old_layout, new_layout = old_package(options.revision, top / "old"), lay_out(top / "new")
        for number, scene in enumerate(scene for scene in SCENES if options.scene in scene.__name__):
            data_dir = top / str(number)
            data_dir.mkdir(mode=0o700)
            stage = Stage(data_dir, old_layout, new_layout, options.shims)
            try:
                is_well = trio.run(play, scene, stage, options.protocol) and is_well
            finally:
                kill_daemons_below(data_dir)
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main())
