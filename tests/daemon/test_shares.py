"""Ring 3: who must wait for others, and how long."""

from __future__ import annotations

import pytest
import trio

from mcpstated.daemon import shares as module
from mcpstated.daemon.shares import (
    BURST_BYTES,
    BYTES_PER_SECOND,
    COMPANY_SECONDS,
    CONNECTION_BURST,
    CONNECTIONS_PER_SECOND,
    REQUESTS_ALONE,
    REQUESTS_IN_COMPANY,
    Shares,
)

pytestmark = pytest.mark.requirement("P7")


async def seconds_of_pace(share: module.Share) -> float:
    began = trio.current_time()
    await share.pace()
    return trio.current_time() - began


async def test_whoever_is_alone_never_waits(autojump_clock: trio.testing.MockClock) -> None:
    """The limit is for the sake of others; an import of one's own may take all there is."""
    share = Shares().of(1)
    share.note_request()
    share.charge(100 * BURST_BYTES)

    assert await seconds_of_pace(share) == 0
    assert share.requests_at_once == REQUESTS_ALONE


async def test_in_company_what_is_beyond_the_burst_comes_at_the_rate(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Worked example: a burst and two seconds' worth more mean two seconds."""
    shares = Shares()
    share = shares.of(1)
    shares.of(2).note_request()

    share.charge(BURST_BYTES)
    assert await seconds_of_pace(share) == 0
    share.charge(2 * BYTES_PER_SECOND)
    assert await seconds_of_pace(share) == pytest.approx(2, abs=0.01)
    assert share.requests_at_once == REQUESTS_IN_COMPANY


async def test_a_process_has_few_requests_running_in_company_whatever_its_connections(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Thirty connections with a request each would be thirty turns of the loop before anybody else's."""
    shares = Shares()
    share = shares.of(1)
    shares.of(2).note_request()
    for _ in range(REQUESTS_IN_COMPANY):
        assert shares.of(1).has_room
        shares.of(1).begin_request()
    assert not share.has_room
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(share.request_ended)
            await trio.testing.wait_all_tasks_blocked()
            share.end_request()
    assert share.has_room


async def test_the_burst_comes_back_with_time_and_not_beyond_itself(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A day of silence does not earn a day's worth of bytes."""
    shares = Shares()
    share = shares.of(1)
    share.charge(BURST_BYTES)
    await trio.sleep(86_400)
    shares.of(2).note_request()
    share.charge(BURST_BYTES + BYTES_PER_SECOND)

    assert await seconds_of_pace(share) == pytest.approx(1, abs=0.01)


async def test_waiting_ends_soon_after_the_others_are_gone(autojump_clock: trio.testing.MockClock) -> None:
    """Nobody waits for those who do nothing any more."""
    shares = Shares()
    share = shares.of(1)
    shares.of(2).note_request()
    share.charge(1_000 * BURST_BYTES)

    assert COMPANY_SECONDS <= await seconds_of_pace(share) < COMPANY_SECONDS + 0.2


async def test_no_debt_is_larger_than_the_most(autojump_clock: trio.testing.MockClock) -> None:
    """What one huge message costs is paid in seconds, not in hours."""
    shares = Shares()
    share, other = shares.of(1), shares.of(2)
    share.charge(10_000 * BURST_BYTES)
    other.note_request()
    async with trio.open_nursery() as nursery:

        async def keep_company() -> None:
            while True:
                other.note_request()
                await trio.sleep(1)

        nursery.start_soon(keep_company)
        assert await seconds_of_pace(share) == pytest.approx(module._DEBT_BYTES / BYTES_PER_SECOND, abs=0.2)
        nursery.cancel_scope.cancel()


async def test_company_is_somebody_else_who_asked_of_late(autojump_clock: trio.testing.MockClock) -> None:
    """Own requests are no company, however many sessions they come from, and all others are."""
    shares = Shares()
    one, two, three = shares.of(1), shares.of(2), shares.of(3)
    one.note_request()
    shares.of(1).note_request()
    assert (one.is_in_company, two.is_in_company) == (False, True)
    two.note_request()
    one.note_request()
    one.note_request()
    assert (one.is_in_company, two.is_in_company, three.is_in_company) == (True, True, True)
    await trio.sleep(COMPANY_SECONDS - 1)
    one.note_request()
    await trio.sleep(2)
    assert (one.is_in_company, two.is_in_company) == (False, True)


async def test_all_connections_of_a_process_have_one_share() -> None:
    """More connections do not make anybody's part larger."""
    shares = Shares()
    assert shares.of(7) is shares.of(7)
    assert shares.of(7) is not shares.of(8)
    assert shares.of(0) is not shares.of(0)


async def test_a_process_may_connect_a_burst_and_then_at_the_rate(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Whoever connects again and again never asks for anything that could be paced."""
    share = Shares().of(1)
    admitted = sum(share.may_connect() for _ in range(10 * CONNECTION_BURST))
    assert CONNECTION_BURST <= admitted <= CONNECTION_BURST + 1
    await trio.sleep(2)
    admitted = sum(share.may_connect() for _ in range(10 * CONNECTION_BURST))
    assert admitted == pytest.approx(2 * CONNECTIONS_PER_SECOND, abs=2)


async def test_no_process_may_have_all_connections() -> None:
    """A program that forgets to close them keeps out itself and nobody else."""
    shares = Shares(max_connections=8)
    share = shares.of(1)
    for _ in range(6):
        assert share.may_connect()
        share.connections += 1
    assert not share.may_connect()
    assert shares.of(2).may_connect()


async def test_processes_that_come_and_go_are_forgotten_and_those_connected_are_not() -> None:
    """Process numbers are many: the table is bounded, and no open connection loses what it owes."""
    shares = Shares()
    connected = shares.of(1)
    recent = shares.of(2)
    with connected.connection():
        for pid in range(10, 10 + 3 * module._KEPT_SHARES):
            assert shares.of(pid) is shares.of(pid)
            assert shares.of(2) is recent
        assert shares.of(1) is connected
        assert len(shares._shares) <= module._KEPT_SHARES


async def test_more_connected_processes_than_are_remembered_all_keep_their_share() -> None:
    """The bound is on what nobody uses; how many are connected is bounded elsewhere."""
    shares = Shares()
    held = [shares.of(pid) for pid in range(1, 2 * module._KEPT_SHARES)]
    for share in held:
        share.connections += 1
    more = [shares.of(pid) for pid in range(1, 2 * module._KEPT_SHARES)]
    assert more[-module._KEPT_SHARES // 2 :] == held[-module._KEPT_SHARES // 2 :]
