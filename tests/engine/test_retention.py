"""What is kept has a bound: days of steady use leave no more on the disk than the limits allow.

`tests/long/month.py` does the same with 300,000 patches and the default limits.
"""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest
import trio

from mcpstated.daemon.backends import compaction
from mcpstated.daemon.testing import open_engine
from mcpstated.protocol.limits import Limits
from mcpstated.protocol.patches import SetKey
from mcpstated.protocol.store import Caller
from support.busy_month import BusyDays, Habits, bytes_bound, row_bounds

LIMITS = Limits(
    history_changes=100,
    history_days=2,
    trash_days=1,
    trash_handles=20,
    wal_bytes=200_000,
    reserve_bytes=65_536,
)
HABITS = Habits(handles=5, patches=500, slots=8, passing=24, deleted=24)
DAYS = 5


@pytest.mark.once
@pytest.mark.requirement("P6")
async def test_days_of_steady_use_stay_within_bounds_that_follow_from_the_limits(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P6: rows of every table, the file, its log, all of it together; and nothing grows from day to day."""
    monkeypatch.setattr(compaction, "KEPT_BYTES", 100_000)
    async with open_engine(path, limits=LIMITS) as running:
        days = BusyDays(running, path, HABITS, LIMITS)
        with trio.fail_after(120):
            await days.begin()
            figures = [await days.live_a_day() for _ in range(DAYS)]
        for name, bound in row_bounds(LIMITS, HABITS).items():
            assert 0 < max(figure.rows[name] for figure in figures) <= bound, name
        bound_bytes = bytes_bound(LIMITS, HABITS, document_bytes=await days.largest_document_bytes())
        assert max(figure.all_bytes for figure in figures) <= bound_bytes
        assert days.largest_wal_bytes <= LIMITS.wal_bytes
        assert figures[-1].database_bytes <= 1.3 * figures[DAYS // 2].database_bytes


@pytest.mark.once
@pytest.mark.requirement("C25", "P6")
async def test_the_log_returns_to_its_limit_after_thousands_of_patches_under_an_open_read(
    path: Path, alice: Caller, caplog: pytest.LogCaptureFixture
) -> None:
    """C25: another program reads for long; every patch is stored, somebody is warned, nobody restarts."""
    wal = path.with_name(path.name + "-wal")
    limits = Limits(wal_bytes=1_000_000)
    async with open_engine(path, limits=limits) as running:
        store = running.store
        handles = [(await store.mint(alice, kind="a", document={"n": 0})).info.handle for _ in range(50)]
        reading = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        reading.execute("BEGIN")
        assert reading.execute("SELECT count(*) FROM handles").get == 50
        for number in range(80):
            async with trio.open_nursery() as nursery:
                for handle in handles:
                    nursery.start_soon(store.patch, alice, handle, [SetKey("", "n", f"{number}" * 100)])
            if number % 20 == 19:
                await store.sweep()
        assert wal.stat().st_size > limits.wal_bytes
        assert "write-ahead log was kept long by an open read" in caplog.text
        assert reading.execute("SELECT max(version) FROM changes").get == 1
        reading.close()
        await store.sweep()
        assert wal.stat().st_size <= limits.wal_bytes
        assert (await store.list(alice, limit=50)).total == 50
        assert [(await store.load(alice, handle)).info.version for handle in handles] == [81] * 50
