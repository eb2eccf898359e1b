"""Single decisions of a pass that a whole story meets only when two things happen at the same moment."""

import dataclasses

import pytest
from builders import (
    GIB,
    NOW,
    SEAT,
    make_claim,
    make_draft,
    make_engine,
    make_instance,
    make_pod,
    make_snapshot,
)

from aibrix_operator.api import names
from aibrix_operator.api.modelclaim import InstancePhase
from aibrix_operator.api.pool_policy import Lifecycle, PoolPolicy
from aibrix_operator.ledger.card import Seat
from aibrix_operator.ledger.placement import Refused
from aibrix_operator.modelclaim import admitting, auditing, making_room, moving, retire, starting, waking
from aibrix_operator.modelclaim.draft import Findings, sitting_of
from aibrix_operator.modelclaim.memory import (
    CardMemory,
    Cause,
    ClaimMemory,
    Division,
    GoingToSleep,
    Hold,
    Wait,
    WaitKind,
    WakeRequest,
)
from aibrix_operator.modelclaim.placing import Placements
from aibrix_operator.modelclaim.snapshot import Pool
from aibrix_operator.modelclaim.steps import Activate, Deactivate, SetFinalizer
from aibrix_operator.runtime_api.wire import EnginePhase

LENDING = Pool(
    "default",
    "pool-a",
    "uid-of-pool-a",
    policy=PoolPolicy(lifecycle=Lifecycle(sleepAfterSeconds=600, noWakeReserveWhileAsleep=True)),
)
ASKED_AT = "2026-01-01T00:00:00Z"
ASKED = {names.wake_annotation("a"): ASKED_AT}
SLEEPER = make_engine(phase=EnginePhase.SLEEPING, sleeping_footprint_bytes=20, limit=0, ready=False)


def seated(**fields):
    return make_claim("a", make_instance(**fields))


class TestHolds:
    WAITING = ClaimMemory(wait=Wait(WaitKind.ROOM, 60.0, 1, 1, 1))

    def released(self, now_s, *objects, pool=LENDING):
        pod = make_pod(snapshot=make_snapshot(), pool=pool)
        draft = make_draft(
            pod,
            *objects,
            now_s=now_s,
            cards={"warm-0": CardMemory(hold=Hold("uid-of-a", 400, until_s=50.0))},
            claims={"a": self.WAITING},
        )
        making_room.release_holds(draft)
        return draft.cards[pod.uid].hold is None, draft.claims["uid-of-a"].wait

    def test_a_seat_is_held_until_its_time_is_over_and_then_the_claim_tries_at_once(self):
        assert self.released(49.0, make_claim()) == (False, self.WAITING.wait)
        assert self.released(50.0, make_claim()) == (True, None)

    def test_a_pool_that_lends_no_more_holds_no_seat(self):
        assert self.released(0.0, make_claim(), pool=None) == (True, None)

    def test_a_claim_that_is_gone_or_placed_has_no_seat_held_for_it(self):
        assert self.released(0.0) == (True, self.WAITING.wait)
        assert self.released(0.0, seated()) == (True, self.WAITING.wait)


class TestRequests:
    """To wake a sleeper."""

    KNOWN = WakeRequest("uid-of-warm-0", ASKED_AT, 0.0)

    def look(self, claim, pod, **memory):
        draft = make_draft(claim, pod, claims={"a": ClaimMemory(**memory)}, now_s=5.0)
        waking.wake_sleepers(draft.accounts["warm-0"], draft)
        return draft

    def test_a_request_that_is_taken_back_is_forgotten(self):
        pod = make_pod(snapshot=make_snapshot(SLEEPER))
        draft = self.look(seated(phase=InstancePhase.SLEEPING), pod, wake_request=self.KNOWN)
        assert (draft.claims["uid-of-a"].wake_request, draft.drop_wakes) == (None, set())

    def test_a_request_for_an_engine_that_may_be_falling_asleep_waits_for_the_next_reading(self):
        going = GoingToSleep("uid-of-warm-0", "op", 600.0, None, sent_s=4.0)
        pod = make_pod(snapshot=make_snapshot(make_engine()), annotations=ASKED)
        draft = self.look(seated(), pod, going_to_sleep=going)
        assert (draft.claims["uid-of-a"].wake_request, draft.drop_wakes) == (
            dataclasses.replace(self.KNOWN, first_seen_s=5.0),
            set(),
        )

    def test_a_request_for_an_engine_that_serves_is_served(self):
        pod = make_pod(snapshot=make_snapshot(make_engine()), annotations=ASKED)
        assert self.look(seated(), pod).drop_wakes == {("uid-of-warm-0", "a")}

    def test_a_wake_that_is_done_no_longer_waits_for_room(self):
        """It is done, and its card has yet to show it."""
        pod = make_pod(snapshot=make_snapshot(SLEEPER, usable=(100,)), annotations=ASKED, pool=LENDING)
        done = dataclasses.replace(self.KNOWN, is_done=True)
        draft = self.look(seated(phase=InstancePhase.SLEEPING, limit=0), pod, wake_request=done)
        assert draft.claims["uid-of-a"].wake_request == done
        assert draft.notes == []

    def test_a_seat_that_is_only_being_recorded_is_not_asked_for(self):
        claim = make_claim("a", writing_instances=(make_instance(),), is_writing=True)
        pod = make_pod(snapshot=make_snapshot(), annotations=ASKED)
        assert self.look(claim, pod).drop_wakes == set()


class TestLeavers:
    @pytest.mark.parametrize(
        "pods", [pytest.param([], id="gone"), pytest.param([make_pod(is_running=False)], id="stopped")]
    )
    def test_a_pod_that_is_no_more_has_been_left(self, pods):
        claim = seated(phase=InstancePhase.FAILED)
        draft = make_draft(claim, *pods)
        assert moving.has_left(claim, draft)
        assert draft.steps == []

    def test_a_pod_that_is_not_there_seats_nobody(self):
        assert sitting_of(make_draft().accounts, make_claim(), "warm-0") is None

    def test_a_model_served_for_another_claim_is_not_stopped_with_this_one(self):
        other = make_engine("a")
        other = other.model_copy(update={"claim_ref": other.claim_ref.model_copy(update={"uid": "another"})})
        claim = dataclasses.replace(seated(), deleting_since=NOW)
        draft = make_draft(claim, make_pod(snapshot=make_snapshot(other)))
        retire.retire(claim, draft)
        assert [type(step) for step in draft.steps] == [SetFinalizer]

    @pytest.mark.parametrize("busy_since_s", [None, 1.0])
    def test_an_engine_is_stopped_after_ninety_seconds_whatever_it_serves(self, busy_since_s):
        claim = dataclasses.replace(seated(), deleting_since=NOW)
        pod = make_pod(snapshot=make_snapshot(make_engine(requests_running=1)), busy_since_s=busy_since_s)
        draft = make_draft(claim, pod, now_s=90.0)
        retire.retire(claim, draft)
        is_told = [note.reason for _, note in draft.notes] == ["DrainTimedOut"]
        assert (is_told, [type(step) for step in draft.steps]) == (
            (True, [Deactivate]) if busy_since_s is None else (False, [])
        )

    @pytest.mark.parametrize(
        ("pod", "is_stopped"),
        [
            pytest.param(make_pod(error="cut off"), False, id="an unread engine counts as busy"),
            pytest.param(make_pod(snapshot=make_snapshot()), True, id="a gone engine has drained"),
        ],
    )
    def test_drained_is_what_is_seen_idle(self, pod, is_stopped):
        claim = dataclasses.replace(seated(), deleting_since=NOW)
        draft = make_draft(claim, pod, now_s=6.0, claims={"a": ClaimMemory(drain_since_s=0.0)})
        retire.retire(claim, draft)
        assert bool(draft.steps) is is_stopped


class TestCalledOffMoves:
    def test_the_card_that_made_room_for_the_newcomer_forgets_it(self):
        """Its old card can take the sleeper back, while another card is being divided for it."""
        claim = seated(phase=InstancePhase.FAILED, reason="NoRoomToWake", limit=0)
        division = Division(Cause.PLACEMENT, frozenset(), {"a": 100}, {}, newcomer="a", newcomer_seat=SEAT)
        draft = make_draft(
            claim,
            make_pod("warm-0", make_snapshot(SLEEPER)),
            make_pod("warm-1", make_snapshot()),
            cards={"warm-1": CardMemory(division=division)},
        )
        account = draft.accounts["warm-0"]
        found = Findings()
        found.records["a"] = ("warm-1", 100)
        again = moving.call_off(account, account.sittings[0], draft, found)
        assert (again.phase, again.reason) == (InstancePhase.SLEEPING, "")
        assert (draft.cards["uid-of-warm-1"].division, found.records) == (None, {})
        assert [note.reason for _, note in draft.notes] == ["MoveCalledOff"]


class TestPlacements:
    def test_claims_that_want_the_same_are_refused_with_the_same_words(self):
        claims = [make_claim(name, seat=Seat(30 * GIB, GIB)) for name in "ab"]
        spec = claims[0].spec
        claims[1] = dataclasses.replace(claims[1], spec=spec)
        draft = make_draft(*claims, make_pod(snapshot=make_snapshot()))
        placements = Placements(draft)
        first, second = (placements.choose(c, c.seat, placements.group_of(c)) for c in claims)
        assert isinstance(first, Refused)
        assert second is first

    def test_a_pod_that_took_a_claim_takes_no_other_in_the_same_pass(self):
        claim = make_claim()
        sglang = dataclasses.replace(claim, spec=claim.spec.model_copy(update={"engine": "sglang"}))
        placements = Placements(make_draft(claim, make_pod(snapshot=make_snapshot()), make_pod("warm-1", gpus=2)))
        groups = [placements.group_of(c) for c in (claim, sglang)]
        other = placements.groups["another", 0] = dataclasses.replace(groups[0], settled={})
        placements.seat("warm-0", claim, SEAT)
        assert [list(group.settled) for group in (*groups, other)] == [[], [], []]

    def test_a_claim_without_declared_cost_that_has_an_engine_is_told_nothing_new(self):
        """It needs another Pod, and cannot be given one before it says what it needs."""
        claim = make_claim("a", make_instance(InstancePhase.FAILED), seat=None)
        draft, found = make_draft(claim, make_pod(snapshot=make_snapshot())), Findings()
        admitting.place_waiting(draft, found)
        assert found.scheduled == {}


class TestStarts:
    @pytest.mark.parametrize(("limit", "steps"), [(0, []), (200, [Activate])])
    def test_an_engine_starts_once_its_card_is_divided_for_it(self, limit, steps):
        draft = make_draft(
            seated(phase=InstancePhase.ACTIVATING, port=0, limit=limit), make_pod(snapshot=make_snapshot())
        )
        account = draft.accounts["warm-0"]
        starting.start_engine(account, account.sittings[0], draft)
        assert [type(step) for step in draft.steps] == steps


class TestAudits:
    def test_records_that_sum_past_the_card_are_told(self):
        claims = [make_claim(name, make_instance(limit=400)) for name in "ab"]
        draft = make_draft(*claims, make_pod(snapshot=make_snapshot(make_engine("a"), make_engine("b"))))
        text = "warm-0: footprints and KV limits sum to 1400 bytes, and the card has 1000"
        assert auditing.broken_laws(draft.fleet) == {"warm-0": text}
