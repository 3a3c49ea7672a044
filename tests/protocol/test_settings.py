"""Ring 1: the daemon's settings."""

from __future__ import annotations

import math

import pytest

from mcpstated.protocol.errors import InvalidInput
from mcpstated.protocol.limits import Limits
from mcpstated.protocol.settings import settings_from, variable

HOME = {"HOME": "/home/someone"}


def test_the_defaults_need_nothing_but_a_home() -> None:
    """Clients hand on little more than HOME."""
    settings = settings_from(HOME)

    assert settings.paths.data_dir.startswith("/home/someone/")
    assert settings.database == settings.paths.database
    assert settings.limits == Limits()
    assert settings.idle_seconds == 900
    assert settings.complaints == ()


def test_flag_beats_environment_beats_file_beats_default() -> None:
    """One order, the same for every setting."""
    config = "[daemon]\nidle_seconds = 1\nlog_level = 'error'\n"
    environ = {**HOME, "MCPSTATED_IDLE_SECONDS": "2"}

    assert settings_from(HOME, config).idle_seconds == 1
    assert settings_from(environ, config).idle_seconds == 2
    assert settings_from(environ, config, {"idle_seconds": 3.0}).idle_seconds == 3
    assert settings_from(environ, config, {"log_level": "debug"}).log_level == "debug"
    assert settings_from(environ, config, {"log_level": None}).log_level == "error"


def test_empty_means_default_and_zero_idle_means_never() -> None:
    """Some clients can only set variables to the empty string."""
    environ = {**HOME, "MCPSTATED_DATA_DIR": "", "MCPSTATED_IDLE_SECONDS": "", "MCPSTATED_LOG_LEVEL": ""}

    assert settings_from(environ) == settings_from(HOME) or settings_from(environ).idle_seconds == 900
    assert settings_from({**HOME, "MCPSTATED_IDLE_SECONDS": "0"}).idle_seconds == math.inf


@pytest.mark.parametrize(
    ("environ", "field"),
    [
        ({"MCPSTATED_DATA_DIR": "relative/path"}, "MCPSTATED_DATA_DIR"),
        ({"MCPSTATED_DATA_DIR": "${HOME}/x"}, "MCPSTATED_DATA_DIR"),
        ({"MCPSTATED_IDLE_SECONDS": "soon"}, "idle_seconds"),
        ({"MCPSTATED_IDLE_SECONDS": "-1"}, "idle_seconds"),
        ({"MCPSTATED_IDLE_SECONDS": "nan"}, "idle_seconds"),
        ({"MCPSTATED_LOG_LEVEL": "loud"}, "log_level"),
        ({"MCPSTATED_MAX_STATE_BYTES": "0"}, "MCPSTATED_MAX_STATE_BYTES"),
        ({"MCPSTATED_MAX_STATE_BYTES": "99999999"}, "max_state_bytes"),
        ({"MCPSTATED_BACKEND": "mysql://x"}, "backend"),
        ({"MCPSTATED_BACKEND": "sqlite:///relative.db"}, "backend"),
        ({"MCPSTATED_BACKEND": "sqlite:///"}, "backend"),
    ],
)
def test_a_value_that_cannot_be_used_is_refused_by_name(environ: dict[str, str], field: str) -> None:
    """A setting that is silently ignored is found years later."""
    with pytest.raises(InvalidInput) as caught:
        settings_from({**HOME, **environ})

    assert caught.value.details["field"] == field


def test_names_that_nobody_knows_are_reported() -> None:
    """A misspelt name would otherwise look as if it worked."""
    config = "[daemon]\nidle = 1\n[limit]\n[limits]\nmax_depht = 3\n"
    complaints = settings_from({**HOME, "MCPSTATED_DATADIR": "/x"}, config).complaints

    assert len(complaints) == 4
    assert any("MCPSTATED_DATADIR" in complaint for complaint in complaints)
    assert any("limits.max_depht" in complaint for complaint in complaints)


@pytest.mark.requirement("P6")
@pytest.mark.parametrize("name", list(Limits.__dataclass_fields__))
def test_every_limit_can_be_set(name: str) -> None:
    """DESIGN section 10: all limits are configurable."""
    settings = settings_from(
        HOME,
        f"[limits]\n{name} = 400000\nmax_frame_bytes = 1600000\n".replace(
            "max_frame_bytes = 1600000\n", "" if name == "max_frame_bytes" else "max_frame_bytes = 16000000\n"
        )
        + ("max_state_bytes = 100000\n" if name == "max_frame_bytes" else ""),
    )

    assert getattr(settings.limits, name) == 400000


def test_the_names_of_mcpstate_are_understood_where_ours_are_not_set() -> None:
    """Users of mcpstate keep their client configuration."""
    environ = {**HOME, "MCPSTATE_USER": "ann", "MCPSTATE_MAX_STATE_BYTES": "1000", "MCPSTATE_WRITER": "w"}

    assert variable(environ, "USER") == "ann"
    assert variable({**environ, "MCPSTATED_USER": "bob"}, "USER") == "bob"
    assert variable(environ, "DATA_DIR") == ""
    assert settings_from(environ).limits.max_state_bytes == 1000


@pytest.mark.parametrize("url", ["sqlite:////srv/x.db", "sqlite:///~/../../srv/x.db"])
def test_the_backend_names_a_database_file(url: str) -> None:
    """Four slashes make an absolute path, and `~` is expanded."""
    assert settings_from({**HOME, "MCPSTATED_BACKEND": url}).database == "/srv/x.db"


def test_a_broken_config_file_is_refused() -> None:
    """Starting with half of the settings would be worse than not starting."""
    with pytest.raises(InvalidInput, match=r"config\.toml"):
        settings_from(HOME, "[daemon")
