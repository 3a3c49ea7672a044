"""`mcpstated demo`: the main job, live, in a minute's reading and a few seconds' time."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import click

from mcpstated.cli.blocks import Line
from mcpstated.cli.exit_codes import ExitCode
from mcpstated.cli.failures import interrupted
from mcpstated.cli.result import Problem, Result

if TYPE_CHECKING:
    from mcpstated.cli.demo.narrator import Narrator


@click.command("demo")
def command() -> Result:
    """Watch two real MCP clients share a state, and a killed daemon that nobody misses.

    It plays in a private directory, with a daemon of its own; your own store is not touched.
    """
    import trio

    from mcpstated.cli.demo.failed import DemoFailed
    from mcpstated.cli.demo.narrator import Narrator

    began = time.perf_counter()
    try:
        is_finished = trio.run(_play, Narrator())
    except BaseExceptionGroup as group:
        failed = group.subgroup(DemoFailed)
        if failed is None:
            raise
        return _failed(_first(failed))
    except DemoFailed as error:
        return _failed(error)
    if not is_finished:
        return interrupted("demo")
    seconds = time.perf_counter() - began
    ending = f"\nThat took {seconds:.1f} s. The daemon, the shims and the directory are gone."
    usage = "To use it, give your MCP client the command: mcpstated shim"
    return Result("demo", blocks=(Line(ending, "good"), Line(usage)))


async def _play(narrator: Narrator) -> bool:
    """Play the demo; return False if a signal ended it early. Everything is cleaned up either way."""
    import trio

    from mcpstated.cli.demo.story import tell
    from mcpstated.cli.stage import private_stage

    is_finished = False
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
        async with trio.open_nursery() as nursery:

            async def play() -> None:
                nonlocal is_finished
                async with private_stage("demo") as stage:
                    await tell(stage, narrator)
                    is_finished = True
                nursery.cancel_scope.cancel()

            nursery.start_soon(play)
            async for _ in signals:
                nursery.cancel_scope.cancel()
    return is_finished


def _failed(error: BaseException) -> Result:
    return Result("demo", ExitCode.FAILED, errors=(Problem("demo_failed", str(error)),))


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first exception that is no group."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
