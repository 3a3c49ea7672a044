"""The three servers that are measured, and how each is started on a directory of its own."""

from __future__ import annotations

import json
import os
import subprocess
from abc import ABC, abstractmethod
from pathlib import Path

from clients import Client


class Server(ABC):
    """A server that a client starts, and the store behind it.

    Args:
        command: What a client runs.
        version: Of the installed package.
    """

    name = ""

    def __init__(self, command: list[str], version: str) -> None:
        self.command = command
        self.version = version

    @property
    def label(self) -> str:
        return f"{self.name} {self.version}"

    def start(self, directory: Path) -> Client:
        """Start one client's server on the store in `directory`; its handshake is left to the caller."""
        return Client(self.command, self.environment(directory), directory)

    def client(self, directory: Path) -> Client:
        """Start one client's server and shake hands."""
        client = self.start(directory)
        client.initialize()
        return client

    def environment(self, directory: Path) -> dict[str, str]:
        """Return all that the process may see; nothing comes from the caller's shell."""
        return {"HOME": str(directory), "PATH": os.defpath, "LANG": "C.UTF-8", **self.settings(directory)}

    @abstractmethod
    def settings(self, directory: Path) -> dict[str, str]:
        """Return the variables that put the store into `directory`."""

    def load(self, handle: str, path: str) -> dict[str, object]:
        """Return the arguments of a state_load of one path, whatever its size."""
        return {"handle": handle, "path": path}

    def shared_pids(self, directory: Path) -> list[int]:
        """Return the processes that serve the store beside those of the clients."""
        return []

    def stop(self, directory: Path) -> None:
        """End what is left when the clients are gone."""


class Mcpstated(Server):
    """This project: a shim for each client, one daemon."""

    name = "mcpstated"

    def __init__(self, bin_dir: Path, version: str) -> None:
        self._program = str(bin_dir / "mcpstated")
        super().__init__([self._program, "shim"], version)

    def settings(self, directory: Path) -> dict[str, str]:
        return {"MCPSTATED_DATA_DIR": str(directory / "data")}

    def load(self, handle: str, path: str) -> dict[str, object]:
        return {**super().load(handle, path), "max_bytes": 1 << 20}

    def shared_pids(self, directory: Path) -> list[int]:
        status = self._ask(directory, "status", "--json")
        return [json.loads(status.stdout)["data"]["daemon"]["pid"]]

    def stop(self, directory: Path) -> None:
        self._ask(directory, "stop")

    def set_limits(self, directory: Path, **limits: int) -> None:
        """Configure the daemon before its first start."""
        (directory / "data").mkdir(mode=0o700, parents=True)
        lines = ["[limits]", *(f"{name} = {value}" for name, value in limits.items())]
        (directory / "data" / "config.toml").write_text("\n".join(lines) + "\n")

    def _ask(self, directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self._program, *arguments],
            env=self.environment(directory),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


class Mcpstate(Server):
    """mcpstate: a full server process for each client over one SQLite file."""

    name = "mcpstate"

    def __init__(self, bin_dir: Path, version: str) -> None:
        self.python = str(bin_dir / "python")
        super().__init__([str(bin_dir / "mcpstate"), "serve"], version)

    def settings(self, directory: Path) -> dict[str, str]:
        return {"MCPSTATE_BACKEND": self.backend(directory)}

    def backend(self, directory: Path) -> str:
        return f"sqlite:///{directory / 'state.db'}"


class ServerMemory(Server):
    """@modelcontextprotocol/server-memory: a process for each client over one JSON file."""

    name = "server-memory"

    def __init__(self, node: str, program: Path, version: str) -> None:
        super().__init__([node, str(program)], version)

    def settings(self, directory: Path) -> dict[str, str]:
        return {"MEMORY_FILE_PATH": str(directory / "memory.jsonl")}


def package_version(bin_dir: Path, package: str) -> str:
    """Return the version of a package that is installed in a virtual environment."""
    asked = subprocess.run(
        [str(bin_dir / "python"), "-c", f"import importlib.metadata as m; print(m.version({package!r}))"],
        capture_output=True,
        text=True,
        check=True,
    )
    return asked.stdout.strip()


def npm_version(program: Path) -> str:
    """Return the version in the package.json of the package that `program` belongs to."""
    version: str = json.loads((program.parent.parent / "package.json").read_text())["version"]
    return version
