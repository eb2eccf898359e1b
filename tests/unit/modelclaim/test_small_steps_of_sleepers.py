"""Single decisions about sleepers, their requests and the room they make that no whole story meets by itself."""

import dataclasses
from datetime import timedelta

import pytest
from builders import (
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
from aibrix_operator.api.conditions import Condition, rfc3339
from aibrix_operator.api.modelclaim import InstancePhase, Reason
from aibrix_operator.api.pool_policy import Lifecycle, PoolPolicy
from aibrix_operator.ledger.card import Seat
from aibrix_operator.modelclaim import (
    making_room,
    moving,
    sleeping,
    waking,
)
from aibrix_operator.modelclaim.draft import BOOT_PACE_S, Findings
from aibrix_operator.modelclaim.memory import (
    Activity,
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
from aibrix_operator.modelclaim.publish import Scheduled
from aibrix_operator.modelclaim.snapshot import Pool
from aibrix_operator.modelclaim.steps import Sleep, Wake
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

    def test_a_request_that_was_refused_is_taken_off_wherever_it_still_stands(self):
        pod = make_pod(snapshot=make_snapshot(SLEEPER), annotations=ASKED)
        draft = self.look(seated(phase=InstancePhase.SLEEPING), pod, refused_wake=ASKED_AT)
        assert draft.drop_wakes == {("uid-of-warm-0", "a")}
        assert draft.claims["uid-of-a"].wake_request is None

    def test_clients_of_a_sleeper_come_before_a_claim_that_room_is_made_for(self):
        pod = make_pod(snapshot=make_snapshot(SLEEPER), annotations=ASKED, pool=LENDING)
        claim = seated(phase=InstancePhase.SLEEPING, limit=0)
        for held, is_held in ((600, True), (601, False)):
            hold = CardMemory(hold=Hold("uid-of-b", held, until_s=50.0))
            draft = make_draft(claim, pod, cards={"warm-0": hold})
            waking.wake_sleepers(draft.accounts["warm-0"], draft)
            assert (draft.cards["uid-of-warm-0"].hold is not None) is is_held

    def test_a_card_that_was_not_divided_to_its_end_is_divided_again_before_a_wake(self):
        pod = make_pod(snapshot=make_snapshot(SLEEPER), annotations=ASKED)
        claim = seated(phase=InstancePhase.SLEEPING)
        request = dataclasses.replace(self.KNOWN, is_granted=True)
        for next_round_s, is_forgotten in ((6.0, False), (5.0, True)):
            composition = make_draft(claim, pod).accounts["warm-0"].composition
            memory = CardMemory(divided_for=composition, next_round_s=next_round_s)
            draft = make_draft(
                claim, pod, now_s=5.0, claims={"a": ClaimMemory(wake_request=request)}, cards={"warm-0": memory}
            )
            waking.wake_sleepers(draft.accounts["warm-0"], draft)
            assert (draft.cards["uid-of-warm-0"].divided_for == frozenset()) is is_forgotten
            assert draft.steps == []

    @pytest.mark.parametrize(
        ("neighbour", "in_force", "usable", "largest", "wakes"),
        [
            pytest.param(100, 300, 1100, 1100, True, id="there is room for all that is known"),
            pytest.param(100, 300, 1099, 1099, False, id="a neighbour's limit leaves it a byte too little"),
            pytest.param(300, 100, 1100, 1100, True, id="a neighbour whose limit is below its floor keeps that"),
            pytest.param(300, 100, 1099, 1099, False, id="and it is a byte too little"),
            pytest.param(100, -1, 1000, 1000, True, id="a neighbour without a segment may take its record"),
            pytest.param(100, -1, 999, 999, False, id="and that is a byte too much"),
            pytest.param(100, 300, -1, 1100, True, id="an unmeasured card that was large enough"),
            pytest.param(100, 300, -1, 1099, False, id="an unmeasured card that was never large enough"),
            pytest.param(100, 300, -1, 0, True, id="a card that was never measured"),
            pytest.param(None, 300, 400, 400, True, id="a neighbour that declares nothing says nothing"),
        ],
    )
    def test_on_a_card_that_cannot_be_judged_nobody_wakes_past_what_is_known(
        self, neighbour, in_force, usable, largest, wakes
    ):
        seat = None if neighbour is None else Seat(400, neighbour)
        other = make_claim("b", make_instance(limit=200), seat=seat)
        engines = make_engine(phase=EnginePhase.SLEEPING, limit=100), make_engine("b", limit=in_force)
        leaver = make_engine("c", EnginePhase.STOPPING)
        pod = make_pod(snapshot=make_snapshot(*engines, leaver, usable=(usable,), total=(2000,)), annotations=ASKED)
        pod = dataclasses.replace(pod, reading=dataclasses.replace(pod.reading, largest_bytes=largest))
        request = dataclasses.replace(self.KNOWN, is_granted=True)
        draft = make_draft(
            seated(phase=InstancePhase.SLEEPING, limit=100), other, pod, claims={"a": ClaimMemory(wake_request=request)}
        )
        waking.wake_sleepers(draft.accounts["warm-0"], draft)
        assert [type(step) for step in draft.steps] == ([Wake] if wakes else [])
        assert draft.claims["uid-of-a"].wake_request.waits_for == ("" if wakes else waking.NO_ROOM)

    def test_on_a_pod_without_cards_whoever_is_asked_for_wakes(self):
        engine = make_engine(phase=EnginePhase.SLEEPING, limit=-1)
        pod = make_pod(snapshot=make_snapshot(engine, usable=()), gpus=0, annotations=ASKED)
        request = dataclasses.replace(self.KNOWN, is_granted=True)
        draft = self.look(seated(phase=InstancePhase.SLEEPING, limit=0), pod, wake_request=request)
        assert [type(step) for step in draft.steps] == [Wake]

    def test_a_seat_that_is_only_being_recorded_is_not_asked_for(self):
        claim = make_claim("a", writing_instances=(make_instance(),), is_writing=True)
        pod = make_pod(snapshot=make_snapshot(), annotations=ASKED)
        assert self.look(claim, pod).drop_wakes == set()


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

    @pytest.mark.parametrize(("usable", "phase"), [(700, InstancePhase.SLEEPING), (420, None)])
    def test_a_seat_that_was_lent_and_is_not_there_keeps_nobody_from_its_own(self, usable, phase):
        """The pool lends no more, and both seats together are more than the card has."""
        moving_claim = seated(phase=InstancePhase.FAILED, reason="NoRoomToWake", limit=0)
        lender = make_claim("b", make_instance(InstancePhase.SLEEPING, limit=0))
        engines = [make_engine(c, EnginePhase.SLEEPING, limit=0, sleeping_footprint_bytes=50) for c in "ab"]
        draft = make_draft(moving_claim, lender, make_pod(snapshot=make_snapshot(*engines, usable=(usable,))))
        account = draft.accounts["warm-0"]
        again = moving.call_off(account, account.sittings[0], draft, Findings())
        assert (None if again is None else again.phase) == phase

    UP, BOOTING, DEAD = make_engine(), make_engine(ready=False), make_engine(phase=EnginePhase.FAILED, alive=False)

    def called_off(self, engine, reason, **memory):
        claim = seated(phase=InstancePhase.FAILED, reason=reason, port=1)
        draft = make_draft(claim, make_pod(snapshot=make_snapshot(engine)), claims={"a": ClaimMemory(**memory)})
        account = draft.accounts["warm-0"]
        again = moving.call_off(account, account.sittings[0], draft, Findings())
        assert again is None or (again.reason, again.port) == ("", engine.port)
        return None if again is None else again.phase

    @pytest.mark.parametrize(
        ("engine", "reason", "phase"),
        [
            pytest.param(UP, "", InstancePhase.ACTIVATING, id="it never failed, or was started again"),
            pytest.param(UP, "NoRoomToWake", InstancePhase.ACTIVATING, id="it came back awake where it had no room"),
            pytest.param(UP, "WakeFailed", InstancePhase.ACTIVATING, id="it woke after all"),
            pytest.param(SLEEPER, "", InstancePhase.SLEEPING, id="it never failed, and sleeps"),
            pytest.param(SLEEPER, "WakeFailed", None, id="it could not be woken"),
            pytest.param(BOOTING, "", None, id="nobody knows yet what becomes of it"),
            pytest.param(DEAD, "", None, id="it failed"),
        ],
    )
    def test_nobody_moves_from_where_its_engine_runs(self, engine, reason, phase):
        assert self.called_off(engine, reason) == phase

    def test_who_was_asked_to_stop_moves_whatever_its_engine_does(self):
        assert self.called_off(self.UP, "", asked_to_stop=frozenset({"uid-of-warm-0"})) is None


class TestEnginesOnTheirWayToSleep:
    GOING = GoingToSleep("uid-of-warm-0", "op", 600.0, None, unrouted_s=1.0, settled_reading=0)

    def look(self, pod, going=GOING, now_s=60.0):
        draft = make_draft(seated(), pod, now_s=now_s, claims={"a": ClaimMemory(going_to_sleep=going)})
        sleeping.continue_sleeps(draft.accounts["warm-0"], draft)
        return draft

    def test_a_runtime_that_does_not_answer_is_not_asked_to_put_anybody_to_sleep(self):
        assert self.look(make_pod(error="cut off")).claims["uid-of-a"].going_to_sleep is None

    @pytest.mark.parametrize(("busy_since_s", "steps"), [(None, [Sleep]), (59.0, [])])
    def test_it_sleeps_once_its_runtime_is_free(self, busy_since_s, steps):
        pod = make_pod(snapshot=make_snapshot(make_engine()), pool=LENDING, busy_since_s=busy_since_s)
        draft = self.look(pod)
        assert [type(step) for step in draft.steps] == steps
        assert draft.off_route == {"uid-of-a"}

    def test_a_reading_from_just_after_its_route_went_does_not_prove_that_it_is_idle(self):
        """What a gateway sent before it knew is on its way for a moment: the look that counts comes after that."""
        pod = make_pod(snapshot=make_snapshot(make_engine()), pool=LENDING)
        going = dataclasses.replace(self.GOING, settled_reading=None)
        for now_s in (1.0, 1.9, 2.0, 2.1):
            draft = self.look(pod, going, now_s)
            after = draft.claims["uid-of-a"].going_to_sleep
            assert (draft.steps, draft.off_route) == ([], {"uid-of-a"})
            assert draft.look_again_s == ({} if now_s < 2.0 else {pod.uid: 0.0})
            assert after is not None
            going = after
        newer = dataclasses.replace(pod, reading=dataclasses.replace(pod.reading, sequence=pod.reading.sequence + 1))
        assert [type(step) for step in self.look(newer, going, 2.2).steps] == [Sleep]


class TestSeatsThatComeBack:
    @pytest.mark.parametrize(
        ("annotations", "lent"), [({}, {"b"}), ({names.wake_annotation("b"): ASKED_AT}, {"a", "b"})]
    )
    def test_room_is_for_who_is_asked_for_before_an_older_seat_is_given_back(self, annotations, lent):
        """The pool lends no more, and the card has room for one of the two seats: its wake is granted that."""
        claims = [make_claim(c, make_instance(InstancePhase.SLEEPING, limit=0)) for c in "ab"]
        engines = [make_engine(c, EnginePhase.SLEEPING, limit=0, sleeping_footprint_bytes=50) for c in "ab"]
        pod = make_pod(snapshot=make_snapshot(*engines, usable=(SEAT.total_bytes + 60,)), annotations=annotations)
        plan_card = make_draft(*claims, pod).accounts["warm-0"].plan_card
        assert plan_card is not None
        assert {o.claim for o in plan_card.occupants if o.lent_footprint_bytes is not None} == lent


class TestMakingRoom:
    READY = Condition(
        type="Ready",
        status="True",
        last_transition_time=rfc3339(NOW - timedelta(seconds=900)),
        reason="ModelClaimActive",
    )

    def pass_over(self, want, asleep_bytes, *, cards=None, **memories):
        """A card of 1000 bytes with two idle engines, and a claim that waits for ``want`` bytes."""
        engines, claims = [], [make_claim("want", seat=Seat(want - 100, 100))]
        for name in "ac":
            engines.append(make_engine(name, ipc_name=name, last_transition=NOW - timedelta(seconds=800)))
            claims.append(make_claim(name, make_instance(), conditions=(self.READY,)))
        known = {name: ClaimMemory(asleep_bytes=asleep_bytes) for name in "ac"} | memories
        refusal = Scheduled(False, Reason.NO_MATCHING_PODS, "no room")
        draft = make_draft(
            *claims,
            make_pod(snapshot=make_snapshot(*engines), pool=LENDING),
            claims={**known, "want": ClaimMemory(refusal=refusal)},
            cards=cards,
        )
        draft.activities = {f"uid-of-warm-0/{name}": Activity(-700.0, None) for name in "ac"}
        return draft

    @pytest.mark.parametrize(
        ("want", "sleepers"),
        [
            pytest.param(580, ["a"], id="one is enough"),
            pytest.param(581, ["a", "c"], id="both are needed"),
            pytest.param(961, None, id="both are not enough"),
        ],
    )
    def test_as_many_sleep_as_are_known_to_be_enough(self, want, sleepers):
        draft = self.pass_over(want, 20)
        claim = next(c for c in draft.fleet.claims if c.name == "want")
        plan = making_room.plan_room(draft.accounts["warm-0"], claim, claim.seat, draft)
        assert (plan and [s.claim.name for _, s in plan.sleepers]) == sleepers

    def test_nobody_sleeps_for_a_new_claim_on_a_card_whose_sleeper_is_asked_for(self):
        claim = make_claim("want")
        pod = make_pod(snapshot=make_snapshot(SLEEPER), annotations=ASKED, pool=LENDING)
        draft = make_draft(claim, seated(phase=InstancePhase.SLEEPING, limit=0), pod)
        assert making_room.plan_room(draft.accounts["warm-0"], claim, SEAT, draft) is None

    def test_of_two_cards_that_are_known_to_help_the_one_with_fewer_sleeps_does(self):
        draft = self.pass_over(580, 20)
        claim = next(c for c in draft.fleet.claims if c.name == "want")
        known = making_room.plan_room(draft.accounts["warm-0"], claim, claim.seat, draft)
        hoped = dataclasses.replace(known, is_known=False)
        more = dataclasses.replace(known, sleepers=known.sleepers * 2)
        assert sorted([hoped, more, known], key=lambda plan: plan.key) == [known, more, hoped]

    def test_nobody_is_sent_to_sleep_while_a_neighbour_is_on_its_way(self):
        going = ClaimMemory(going_to_sleep=GoingToSleep("uid-of-warm-0", "op", 600.0, None))
        draft = self.pass_over(580, 20, c=going)
        making_room.make_room(draft, Placements(draft))
        assert draft.claims.get("uid-of-a").going_to_sleep is None
        assert (draft.cards, draft.wake_at_s) == ({}, BOOT_PACE_S)

    def test_a_seat_that_is_held_stays_held_until_its_first_time_is_over(self):
        hold = CardMemory(hold=Hold("uid-of-want", 580, until_s=50.0))
        draft = self.pass_over(580, 20, cards={"warm-0": hold})
        making_room.make_room(draft, Placements(draft))
        assert draft.claims["uid-of-a"].going_to_sleep is not None
        assert draft.cards == {"uid-of-warm-0": hold}

    def test_a_seat_that_fits_stays_held_while_its_runtime_does_not_take_limits(self):
        hold = CardMemory(hold=Hold("uid-of-want", 580, until_s=50.0))
        draft = self.pass_over(200, 20, cards={"warm-0": hold})
        draft.activities = {}
        making_room.make_room(draft, Placements(draft))
        assert draft.cards == {"uid-of-warm-0": hold}

    def test_a_seat_that_does_not_fit_is_given_back_when_nobody_is_left_to_sleep(self):
        hold = CardMemory(hold=Hold("uid-of-want", 580, until_s=50.0))
        draft = self.pass_over(580, 20, cards={"warm-0": hold})
        draft.activities = {}
        making_room.make_room(draft, Placements(draft))
        assert draft.cards["uid-of-warm-0"].hold is None
