"""The checker of the self-test: it sees every way to be wrong, and calls nothing wrong that may happen."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest

from mcpstated.cli.selftest.checker import check
from mcpstated.cli.selftest.history import Call, to_line
from support.histories import HANDLE, History, document


@pytest.fixture
def history() -> History:
    """A handle that was minted without items."""
    return History()


def kinds(history: History) -> set[str]:
    """Return what is wrong, in the checker's words."""
    return {problem.kind for problem in check(history.calls)}


def test_a_history_without_a_fault_is_right(history: History) -> None:
    """A check that finds fault with everything proves nothing either."""
    history.append("a", 2)
    history.load(2, "a")
    history.save(2, 3, "a", saves=1)
    history.conflict(2, 3, changes=[{"version": 3, "action": "save"}], state=document("a", saves=1))
    history.add("touch", {"ttl_days": 1}, {"version": 4})
    history.load(4, "a", saves=1)
    history.delete(5)
    history.not_found()
    assert check(history.calls) == []
    assert check([]) == []


def test_calls_at_the_same_time_may_have_any_order(history: History) -> None:
    """Which of two overlapping calls is first is for the daemon to say, whoever began or ended first."""
    history.append("a", 3, at=(1.0, 5.0))
    history.append("b", 2, at=(2.0, 6.0))
    history.load(1, at=(1.5, 7.0))
    history.load(3, "b", "a", at=(1.6, 4.0))
    assert check(history.calls) == []


def test_a_lost_append_is_found(history: History) -> None:
    """Acknowledged and gone: what the store promises never to do."""
    history.append("a", 2)
    history.append("b", 3)
    history.load(3, "b")
    assert "lost" in kinds(history)


def test_an_append_that_is_lost_later_is_found(history: History) -> None:
    """A save of an old document is how it happens; the save is at fault, and the item is lost."""
    history.append("a", 2)
    history.save(1, 3, saves=1)
    history.load(3, saves=1)
    assert kinds(history) == {"lost", "missed_conflict"}


def test_a_doubled_append_is_found(history: History) -> None:
    """A call that is sent again after a kill must not be applied again, not even within one version."""
    history.append("a", 2)
    history.load(2, "a", "a")
    assert "doubled" in kinds(history)


def test_an_append_that_was_applied_as_two_versions_is_found(history: History) -> None:
    """The second one belongs to no call, so there is a version too many as well."""
    history.append("a", 2)
    history.load(3, "a", "a")
    assert {"doubled", "gap"} <= kinds(history)


def test_an_unknown_append_that_was_applied_twice_is_found(history: History) -> None:
    """Its client may not have heard of it, but it is there once or not at all."""
    history.append("a", None)
    history.append("b", None)
    history.load(3, "a", "a")
    assert "doubled" in kinds(history)


def test_a_version_that_was_given_twice_is_found(history: History) -> None:
    """Two changes of one version: the second overwrote the first, or will."""
    history.append("a", 2, at=(1.0, 3.0))
    history.append("b", 2, at=(1.0, 3.0))
    assert "version_twice" in kinds(history)


def test_a_gap_is_found(history: History) -> None:
    """A version that nobody made hides a change that nobody asked for."""
    history.append("a", 3)
    assert "gap" in kinds(history)


def test_a_gap_is_explained_by_one_unknown_change_and_not_by_two(history: History) -> None:
    """There must be an unknown outcome for each version that is missing."""
    history.append("u", None)
    history.append("a", 3)
    assert check(history.calls) == []
    history.append("b", 5)
    assert "gap" in kinds(history)


def test_an_unknown_change_cannot_explain_what_was_there_before_it_began(history: History) -> None:
    """A client that was killed later cannot have made what others had seen already."""
    history.append("a", 3)
    history.append("u", None)
    assert "gap" in kinds(history)


def test_an_unknown_save_cannot_explain_a_version_that_it_was_not_based_on(history: History) -> None:
    """Nobody heard whether it landed, but if it did, then on the version that it expected."""
    history.append("a", 2)
    history.add("save", {"state": document("a", saves=1), "expect_version": 1}, None)
    history.load(3, "a", saves=1)
    assert kinds(history) == {"gap"}


def test_unknown_changes_are_placed_where_they_explain_what_was_seen(history: History) -> None:
    """Two killed clients, two missing versions: only one of the two orders fits, and that one is found."""
    history.append("u", None)
    history.append("v", None)
    history.append("a", 4)
    history.load(4, "v", "u", "a")
    assert check(history.calls) == []
    history.load(4, "u", "v", "a")
    assert kinds(history) == {"content"}


def test_unknown_changes_that_never_happened_are_no_fault(history: History) -> None:
    """A client that died before its call was heard of has changed nothing, and not later either."""
    history.append("u", None)
    history.delete(None)
    history.load(1)
    history.append("a", 2)
    history.load(2, "a")
    assert check(history.calls) == []


def test_too_many_unknown_changes_end_without_a_verdict(history: History) -> None:
    """A search that cannot end in time says so, instead of going on or saying that all is well."""
    for number in range(12):
        history.add("touch", {"ttl_days": number + 1}, None)
    history.append("a", 14)
    history.load(14, "b")
    assert "undecided" in kinds(history)


def test_a_stale_read_is_found(history: History) -> None:
    """Who reads after an acknowledgement sees what was acknowledged."""
    history.append("a", 2)
    history.load(1)
    assert kinds(history) == {"stale_read"}


def test_a_read_that_goes_back_is_found(history: History) -> None:
    """Whoever has seen a version has seen it: after a restart too, nobody sees an older one."""
    history.append("a", 2, at=(1.0, 9.0))
    history.load(2, "a", at=(2.0, 3.0))
    history.load(1, at=(4.0, 5.0))
    assert kinds(history) == {"backward_read"}


def test_a_change_that_comes_before_one_that_had_ended_is_found(history: History) -> None:
    """Versions count in the order of time."""
    history.append("a", 3)
    history.append("b", 2)
    assert kinds(history) == {"order"}


def test_a_change_that_a_read_had_seen_before_it_began_is_found(history: History) -> None:
    """Nobody reads what nobody has asked for yet."""
    history.load(2, "a")
    history.append("a", 2)
    assert kinds(history) == {"order"}


def test_a_conflict_with_nobody_is_found(history: History) -> None:
    """A save on the newest version must land."""
    history.append("a", 2)
    history.conflict(2, 2)
    assert kinds(history) == {"wrong_conflict"}


def test_a_conflict_that_tells_of_other_changes_is_found(history: History) -> None:
    """A model merges from what its conflict says."""
    history.append("a", 2)
    operations = [{"op": "append", "path": "items", "value": "b"}]
    history.conflict(1, 2, changes=[{"version": 2, "action": "patch", "operations": operations}])
    assert kinds(history) == {"wrong_conflict"}


def test_a_conflict_that_should_have_been_is_found(history: History) -> None:
    """A save that lands on another version than its own overwrites what it has not seen."""
    history.append("a", 2)
    history.save(1, 3, "a", saves=1)
    assert kinds(history) == {"missed_conflict"}


def test_content_that_is_not_the_replay_is_found(history: History) -> None:
    """Nothing is lost or doubled here, only in another order than the versions say."""
    history.append("a", 2)
    history.append("b", 3)
    history.load(3, "b", "a")
    assert kinds(history) == {"content"}


def test_a_part_and_an_older_version_are_compared_too(history: History) -> None:
    """A handle is right only if each of its versions is, in each of its parts."""
    history.append("a", 2)
    history.append("b", 3)
    history.add("load", {"path": "items"}, {"version": 3, "state": ["a", "b"]})
    history.add("load", {"version": 2}, {"version": 2, "state": document("a")})
    assert check(history.calls) == []
    history.add("load", {"path": "marks"}, {"version": 3, "state": {"x": 1}})
    assert kinds(history) == {"content"}


def test_what_a_patch_says_of_its_list_and_its_size_is_compared(history: History) -> None:
    """Agents act on receipts without loading."""
    operation = {"op": "append", "path": "items", "value": "a"}
    for told in ({"size_bytes": 1}, {"touched": [{"op": "append", "path": "items", "length": 2}]}):
        told_wrongly = History()
        told_wrongly.add("patch", {"ops": [operation]}, {"version": 2, **told})
        assert kinds(told_wrongly) == {"content"}


def test_a_refused_change_that_happened_all_the_same_is_found(history: History) -> None:
    """ "Nothing was done" has to be true."""
    operation = {"op": "append", "path": "items", "value": "a"}
    history.add("patch", {"ops": [operation]}, {}, code="daemon_unavailable")
    history.load(2, "a")
    assert {"ghost", "gap"} <= kinds(history)


def test_a_handle_that_lives_after_its_deletion_is_found(history: History) -> None:
    """Deleted is deleted, whoever is restarted meanwhile."""
    history.delete(2)
    history.append("a", 3)
    assert "undead" in kinds(history)
    history = History()
    history.delete(2)
    history.load(2)
    assert kinds(history) == {"undead"}
    history = History()
    history.delete(2)
    history.load(1)
    assert kinds(history) == {"stale_read"}


def test_a_handle_that_is_missing_without_a_deletion_is_found(history: History) -> None:
    """Not found before anybody had begun to delete it, and afterwards it is there again."""
    history.not_found()
    history.delete(None)
    assert kinds(history) == {"wrong_not_found"}


def test_a_deletion_that_nobody_heard_of_is_no_fault(history: History) -> None:
    """The client that deleted was killed; another one finds nothing, and the auditor brings it back."""
    history.append("a", 2)
    history.delete(None)
    history.not_found("touch")
    history.add("undelete", {}, {"version": 4})
    history.load(4, "a")
    history.add("load", {"version": 3}, {"version": 3, "state": document("a")})
    assert check(history.calls) == []
    history.load(2, "a")
    assert kinds(history) == {"stale_read"}


def test_a_version_that_says_two_things_of_itself_is_found(history: History) -> None:
    """Writer, times and title belong to the version, not to who asks or when."""
    history.add("touch", {"ttl_days": 1}, {"version": 2, "last_writer": "vm/one", "expires_at": "x"})
    history.add("load", {}, {"version": 2, "last_writer": "vm/two", "expires_at": "x"})
    assert kinds(history) == {"metadata"}


@pytest.mark.parametrize(("code", "kind"), [("internal_error", "refused"), ("no_answer", "no_answer")])
def test_a_refusal_without_a_reason_is_found(history: History, code: str, kind: str) -> None:
    """Nothing that the clients do deserves one, and every call is answered."""
    history.add("load", {}, {}, code=code)
    assert kinds(history) == {kind}


@pytest.mark.parametrize("seed", range(20))
def test_no_fault_slips_through_in_a_long_history(seed: int) -> None:
    """One change or one read of two hundred calls is falsified, at random; the rest stays as it was."""
    chance = random.Random(seed)
    history = a_long_history(chance)
    assert check(history.calls) == []
    index = chance.choice([n for n, call in enumerate(history.calls) if n > 0 and call.version is not None])
    history.calls[index] = falsified(history.calls[index], chance.choice((-1, 1)))
    assert check(history.calls) != []


def a_long_history(chance: random.Random) -> History:
    """Return what clients see that append and load, two at a time, each read after its change."""
    history = History()
    items: list[str] = []
    for number in range(100):
        now = float(number + 1)
        items.append(f"item-{number}")
        history.append(items[-1], len(items) + 1, at=(now, now + chance.uniform(0.1, 1.5)))
        history.load(len(items) + 1, *items, at=(now + 0.05, now + 0.9))
    return history


def falsified(call: Call, by: int) -> Call:
    """Return a call with another version in its reply."""
    assert call.reply is not None
    return replace(call, reply={**call.reply, "version": call.reply["version"] + by})


def test_a_call_is_kept_as_a_line(history: History) -> None:
    """What is kept of a failed test is read by people and by other programs."""
    history.append("a", None)
    minted, unknown = (json.loads(to_line(call)) for call in history.calls)
    assert minted["reply"] == {"ok": True, "handle": HANDLE, "version": 1}
    assert (unknown["ended"], unknown["reply"]) == (None, None)
    assert unknown["arguments"]["ops"] == [{"op": "append", "path": "items", "value": "a"}]
