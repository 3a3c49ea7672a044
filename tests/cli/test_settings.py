"""Ring 3: reading `config.toml`, whatever lies in its place."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from mcpstated.cli.options import Invocation
from mcpstated.cli.settings import MAX_CONFIG_BYTES, settings_of
from mcpstated.protocol.errors import InvalidInput


def settle(data_dir: Path) -> float:
    return settings_of(Invocation(data_dir=str(data_dir))).idle_seconds


def test_a_file_that_is_not_there_means_the_defaults(data_dir: Path) -> None:
    """Nobody needs one."""
    assert settle(data_dir) == 900


def test_a_link_to_a_file_is_read(data_dir: Path) -> None:
    """Many people keep their settings in one place and link to them."""
    (data_dir / "elsewhere").write_text("[daemon]\nidle_seconds = 5\n")
    (data_dir / "config.toml").symlink_to(data_dir / "elsewhere")
    assert settle(data_dir) == 5


@pytest.mark.requirement("P6")
@pytest.mark.usefixtures("no_leaks")
@pytest.mark.parametrize("kind", ["pipe", "directory", "device", "socket", "text in another encoding"])
def test_anything_but_text_in_its_place_is_refused_by_name_and_at_once(data_dir: Path, kind: str) -> None:
    """P6: opening a pipe waits for a writer for ever, and a device may have no end."""
    config = data_dir / "config.toml"
    if kind == "pipe":
        os.mkfifo(config)
    elif kind == "directory":
        config.mkdir()
    elif kind == "device":
        config.symlink_to("/dev/zero")
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(config))
    else:
        config.write_bytes(b"# \xff\n")
    with pytest.raises(InvalidInput, match=f"^{config} cannot be read: [^.]+\\.$") as caught:
        settle(data_dir)
    assert caught.value.details["field"] == "config.toml"


@pytest.mark.requirement("P6")
def test_a_file_of_a_megabyte_is_read_and_one_byte_more_is_refused(data_dir: Path) -> None:
    """P6: the limit is named, and what passes it is not taken in."""
    config = data_dir / "config.toml"
    config.write_bytes(b"#".ljust(MAX_CONFIG_BYTES, b"x"))
    assert settle(data_dir) == 900
    config.write_bytes(b"#".ljust(MAX_CONFIG_BYTES + 1, b"x"))
    with pytest.raises(InvalidInput, match=f"more than {MAX_CONFIG_BYTES} bytes"):
        settle(data_dir)
