"""Ring 3: private directories, whatever the umask is."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from mcpstated.protocol.directories import make_private_directory
from mcpstated.protocol.errors import DaemonUnavailable


def make_under(umask: int, path: Path) -> None:
    before = os.umask(umask)
    try:
        make_private_directory(str(path))
    finally:
        os.umask(before)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o277, 0o777])
def test_the_owner_alone_has_every_right(tmp_path: Path, umask: int) -> None:
    """A umask that takes rights from the owner made a directory with mode 0000, of use to nobody."""
    make_under(umask, tmp_path / "store")
    assert stat.S_IMODE((tmp_path / "store").stat().st_mode) == 0o700


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o755), (0o077, 0o700), (0o777, 0o700)])
def test_parents_get_the_users_usual_mode_and_can_be_entered(tmp_path: Path, umask: int, mode: int) -> None:
    """They are not ours alone, but without its owner's rights nothing could be made below them."""
    make_under(umask, tmp_path / "a" / "b" / "store")
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == mode
    assert stat.S_IMODE((tmp_path / "a" / "b").stat().st_mode) == mode


def test_a_directory_that_is_there_is_left_as_it_is(tmp_path: Path) -> None:
    """Its owner may have had reasons; only what was made here is put right."""
    store = tmp_path / "store"
    store.mkdir(mode=0o500)
    make_under(0o077, store)
    assert stat.S_IMODE(store.stat().st_mode) == 0o500


def test_a_place_below_a_file_is_refused_by_name(tmp_path: Path) -> None:
    """The message names the path and the reason."""
    (tmp_path / "file").write_text("mine")
    with pytest.raises(DaemonUnavailable, match=f"{tmp_path}/file/a/store cannot be made"):
        make_private_directory(f"{tmp_path}/file/a/store")
