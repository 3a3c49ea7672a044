"""Ring 1: where a store lives, for every client the same."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import platformdirs
import platformdirs.macos
import platformdirs.unix
import pytest

from mcpstated.protocol.errors import InvalidInput
from mcpstated.protocol.paths import (
    SOCKET_PATH_MAX_BYTES,
    Paths,
    absolute_path,
    default_data_dir,
    paths_from_environment,
)

HOME = {"HOME": "/home/ada"}


@pytest.mark.requirement("C03")
@pytest.mark.parametrize(
    ("platform", "directories"),
    [("linux", platformdirs.unix.Unix), ("darwin", platformdirs.macos.MacOS)],
)
def test_the_default_directory_is_the_one_that_platformdirs_names(
    platform: str, directories: type[platformdirs.unix.Unix] | type[platformdirs.macos.MacOS]
) -> None:
    """Worked out here by hand, because the shim cannot afford the import."""
    assert not [name for name in os.environ if name.startswith("XDG_")]
    named = directories("mcpstated", appauthor=False).user_data_dir

    assert default_data_dir(os.environ["HOME"], platform) == named


def test_on_this_system_it_is_platformdirs_own_choice() -> None:
    """The one that users expect."""
    assert paths_from_environment(os.environ).data_dir == platformdirs.user_data_dir(
        "mcpstated", appauthor=False
    )


@pytest.mark.requirement("C03")
@pytest.mark.parametrize(
    "others",
    [
        {},
        {
            "XDG_DATA_HOME": "/elsewhere",
            "XDG_RUNTIME_DIR": "/run/user/1",
            "TMPDIR": "/var/tmp/x",
            "USER": "eve",
        },
        {"MCPSTATED_DATA_DIR": "", "MCPSTATED_SOCKET": ""},
    ],
)
def test_only_home_decides(others: dict[str, str]) -> None:
    """Clients hand different environments on; one store must not become two."""
    default = paths_from_environment(HOME)
    paths = paths_from_environment({**HOME, **others})

    assert (paths.data_dir, paths.socket, paths.database) == (
        default.data_dir,
        default.socket,
        default.database,
    )


def test_all_files_lie_in_the_data_directory() -> None:
    """One directory to back up, to inspect and to delete."""
    paths = Paths("/data")

    for name in Paths.__slots__:
        if name != "data_dir":
            assert Path(getattr(paths, name)).parent == Path("/data")
    assert len({getattr(paths, name) for name in Paths.__slots__}) == len(Paths.__slots__)


def test_the_flag_wins_over_the_environment_and_the_socket_can_be_elsewhere() -> None:
    """Flag, then environment, then default; empty is not given."""
    environ = {**HOME, "MCPSTATED_DATA_DIR": "/from/environment", "MCPSTATED_SOCKET": "/run/x.sock"}

    assert paths_from_environment(environ).data_dir == "/from/environment"
    assert paths_from_environment(environ, data_dir="").data_dir == "/from/environment"
    assert paths_from_environment(environ, data_dir="/from/flag").data_dir == "/from/flag"
    assert paths_from_environment(environ, data_dir="/from/flag").socket == "/run/x.sock"


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("~", "/home/ada"),
        ("~/state", "/home/ada/state"),
        ("/a/./b/../c/", "/a/c"),
        ("/a b/é", "/a b/é"),
        ("/~/x", "/~/x"),
        ("/$HOME", "/$HOME"),
    ],
)
def test_a_home_sign_is_expanded_and_a_path_made_plain(text: str, path: str) -> None:
    """Configuration files are not read by a shell; two spellings must not become two stores."""
    assert absolute_path(text, field="f", home="/home/ada") == path
    assert paths_from_environment({**HOME, "MCPSTATED_DATA_DIR": text}).data_dir == path


@pytest.mark.parametrize(
    "text", ["state", "./state", "../state", "~ada/state", "${HOME}/state", "/x/${workspaceFolder}"]
)
@pytest.mark.parametrize("name", ["MCPSTATED_DATA_DIR", "MCPSTATED_SOCKET"])
def test_a_path_that_depends_on_who_reads_it_is_refused_by_name(name: str, text: str) -> None:
    """A client's working directory is anything, and some clients hand `${...}` on as it stands."""
    with pytest.raises(InvalidInput, match=name) as caught:
        paths_from_environment({**HOME, name: text})
    assert caught.value.details == {"field": name}


def test_a_relative_home_is_refused() -> None:
    """The default would depend on the working directory."""
    with pytest.raises(InvalidInput, match="HOME"):
        paths_from_environment({"HOME": "ada"})
    assert paths_from_environment({"HOME": "ada", "MCPSTATED_DATA_DIR": "/x"}).data_dir == "/x"


@pytest.mark.parametrize("letter", ["x", "é"])
def test_a_socket_beside_the_database_is_used_as_long_as_its_path_fits(letter: str) -> None:
    """Bytes count, not characters."""
    for length in range(60, 130):
        data_dir = "/" + letter * (length // len(letter.encode()))
        paths = Paths(data_dir)
        beside = f"{data_dir}/daemon.sock"
        fits = len(beside.encode()) <= SOCKET_PATH_MAX_BYTES

        assert (paths.socket == beside) == fits
        assert len(os.fsencode(paths.socket)) <= SOCKET_PATH_MAX_BYTES


@pytest.mark.requirement("C03")
def test_a_long_directory_gets_a_short_socket_of_its_own() -> None:
    """The same for every client, another for every directory, in a directory that belongs to this user."""
    long = "/home/ada/" + "deep/" * 40
    one, again, other = Paths(long), Paths(long), Paths(long + "er")

    assert one.socket == again.socket != other.socket
    assert f"-{os.getuid()}-" in one.socket
    assert one.database.startswith(long)


def test_a_socket_path_of_the_longest_length_can_really_be_bound(data_dir: Path) -> None:
    """The limit is the system's, not a guess."""
    room = SOCKET_PATH_MAX_BYTES - len(os.fsencode(data_dir)) - 1
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(data_dir / ("s" * room)))
    with socket.socket(socket.AF_UNIX) as listener, pytest.raises(OSError, match="too long"):
        listener.bind(str(data_dir / ("s" * (room + 2))))


def test_a_named_socket_that_cannot_be_bound_is_refused_at_once() -> None:
    """Instead of an error of the system later, in a daemon that nobody watches."""
    fits = "/" + "s" * (SOCKET_PATH_MAX_BYTES - 1)
    assert paths_from_environment({**HOME, "MCPSTATED_SOCKET": fits}).socket == fits
    with pytest.raises(InvalidInput, match=str(SOCKET_PATH_MAX_BYTES)) as caught:
        paths_from_environment({**HOME, "MCPSTATED_SOCKET": fits + "s"})
    assert caught.value.details == {"field": "MCPSTATED_SOCKET"}


def test_naming_paths_touches_no_disk(tmp_path: Path) -> None:
    """`mcpstated paths` on a fresh machine must not leave anything."""
    paths_from_environment({"HOME": str(tmp_path)})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["MCPSTATED_DATA_DIR", "MCPSTATED_SOCKET", "HOME"])
def test_a_path_that_is_not_utf8_is_refused_in_printable_words(name: str) -> None:
    """It would go into JSON, into the log and to SQLite, and one of them would fail with less to say."""
    path = os.fsdecode(b"/tmp/caf\xe9")
    with pytest.raises(
        InvalidInput, match=rf"^{name} must be a path in UTF-8, got '/tmp/caf\\udce9'\.$"
    ) as caught:
        paths_from_environment({**HOME, name: path})
    assert caught.value.message.isprintable()
