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
    moment,
)

from aibrix_operator.api.modelclaim import InstancePhase
from aibrix_operator.ledger.card import Seat
from aibrix_operator.ledger.placement import Placed, Refused
from aibrix_operator.modelclaim import (
    admitting,
    auditing,
    cards,
    decide,
    health,
    moving,
    retire,
    routes,
    starting,
)
from aibrix_operator.modelclaim.accounts import is_booting
from aibrix_operator.modelclaim.draft import Findings, sitting_of
from aibrix_operator.modelclaim.memory import (
    CardMemory,
    Cause,
    ClaimMemory,
    Division,
    Memory,
    Wait,
    WaitKind,
)
from aibrix_operator.modelclaim.placing import Placements
from aibrix_operator.modelclaim.steps import Activate, Deactivate, SetFinalizer, WriteStatus
from aibrix_operator.runtime_api.wire import EnginePhase


def seated(**fields):
    return make_claim("a", make_instance(**fields))


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
        draft = make_draft(claim, pod, now_s=90.0, claims={"a": ClaimMemory(deleting_since_s=0.0)})
        retire.retire(claim, draft)
        is_told = [note.reason for _, note in draft.notes] == ["DrainTimedOut"]
        assert (is_told, [type(step) for step in draft.steps]) == (
            (True, [Deactivate]) if busy_since_s is None else (False, [])
        )

    @pytest.mark.parametrize(
        ("pod", "recorded", "is_stopped"),
        [
            pytest.param(make_pod(error="cut off"), {}, False, id="an unread engine counts as busy"),
            pytest.param(
                make_pod(error="cut off"),
                {"phase": InstancePhase.ACTIVATING, "port": 0},
                False,
                id="also one whose first answer was not recorded yet",
            ),
            *(
                pytest.param(make_pod(error="cut off"), {"phase": p}, False, id=f"also one that is recorded as {p}")
                for p in (InstancePhase.SLEEPING, InstancePhase.FAILED)
            ),
            pytest.param(make_pod(snapshot=make_snapshot()), {}, True, id="a gone engine has drained"),
        ],
    )
    def test_drained_is_what_is_seen_idle(self, pod, recorded, is_stopped):
        claim = dataclasses.replace(seated(**recorded), deleting_since=NOW)
        draft = make_draft(claim, pod, now_s=6.0, claims={"a": ClaimMemory(drain_since_s=0.0)})
        retire.retire(claim, draft)
        assert bool(draft.steps) is is_stopped


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
        assert placements.choose(claim, SEAT, groups[0]) == Placed("warm-0")
        for pod in ("warm-0", "warm-1"):
            placements.seat(pod, claim, SEAT)
        assert [placements.choose(c, SEAT, group) for c, group in zip((claim, sglang), groups, strict=True)] == [
            None
        ] * 2

    def test_a_claim_without_declared_cost_that_has_an_engine_is_told_nothing_new(self):
        """It needs another Pod, and cannot be given one before it says what it needs."""
        claim = make_claim("a", make_instance(InstancePhase.FAILED), seat=None)
        draft, found = make_draft(claim, make_pod(snapshot=make_snapshot())), Findings()
        admitting.place_waiting(draft, found)
        assert found.scheduled == {}

    def test_a_claim_that_waits_keeps_no_pod_while_its_write_is_under_way(self):
        wait = ClaimMemory(wait=Wait(WaitKind.ROOM, 60.0, 1, 1, 1))
        for memories, newcomers in (({"a": wait}, set()), ({}, {"warm-0"})):
            draft = make_draft(make_claim(is_writing=True), make_pod(snapshot=make_snapshot()), claims=memories)
            admitting.place_waiting(draft, Findings())
            assert set(draft.newcomers) == newcomers

    @pytest.mark.parametrize(
        "changes",
        [pytest.param({"deleting_since": NOW}, id="leaves"), pytest.param({"engine_error": "no"}, id="refused")],
    )
    def test_a_claim_that_leaves_or_cannot_work_takes_no_pod(self, changes):
        draft = make_draft(make_claim(**changes), make_pod(snapshot=make_snapshot()))
        admitting.place_waiting(draft, Findings())
        assert (draft.newcomers, draft.steps) == ({}, [])

    @pytest.mark.parametrize("has_finalizer", [True, False])
    def test_a_claim_that_must_move_has_its_finalizer_put_back_first(self, has_finalizer):
        claim = make_claim("a", make_instance(InstancePhase.FAILED), has_finalizer=has_finalizer)
        draft, found = make_draft(claim, make_pod(snapshot=make_snapshot()), make_pod("warm-1")), Findings()
        admitting.place_waiting(draft, found)
        assert (claim.uid in found.candidates) is has_finalizer


class TestRoutes:
    @pytest.mark.parametrize(("is_writing", "patches"), [(True, 0), (False, 1)])
    def test_no_engine_joins_the_route_while_its_record_is_under_way(self, is_writing, patches):
        claim = make_claim("a", make_instance(), is_writing=is_writing)
        draft = make_draft(claim, make_pod(snapshot=make_snapshot(make_engine())))
        routes.plan_routes(draft.accounts["warm-0"], {claim.uid: claim.status.instances[0]}, draft)
        assert len(draft.steps) == patches


class TestStarts:
    @pytest.mark.parametrize(("limit", "steps"), [(0, []), (200, [Activate])])
    def test_an_engine_starts_once_its_card_is_divided_for_it(self, limit, steps):
        draft = make_draft(
            seated(phase=InstancePhase.ACTIVATING, port=0, limit=limit), make_pod(snapshot=make_snapshot())
        )
        account = draft.accounts["warm-0"]
        starting.start_engine(account, account.sittings[0], draft)
        assert [type(step) for step in draft.steps] == steps

    def test_an_unread_runtime_is_asked_for_nothing(self):
        draft = make_draft(seated(phase=InstancePhase.ACTIVATING, port=0), make_pod(error="cut off"))
        account = draft.accounts["warm-0"]
        starting.start_engine(account, account.sittings[0], draft)
        assert draft.steps == []

    def test_a_start_that_may_be_under_way_is_not_repeated_before_its_time(self):
        draft = make_draft(
            seated(phase=InstancePhase.ACTIVATING, port=0),
            make_pod(snapshot=make_snapshot()),
            claims={"a": ClaimMemory(start_again_s=10.0)},
        )
        account = draft.accounts["warm-0"]
        starting.start_engine(account, account.sittings[0], draft)
        assert (draft.steps, draft.wake_pods_at_s) == ([], {"warm-0": 10.0})

    @pytest.mark.parametrize(
        ("in_force", "told"),
        [
            pytest.param(200, ["model a on pod warm-0: KV limit of 0.0 GiB written over 1.0 GiB"], id="lowered"),
            pytest.param(2 * GIB, [], id="raised"),
        ],
    )
    def test_a_division_that_holds_an_engine_to_its_record_again_is_told(self, in_force, told):
        claim, pod = seated(), make_pod(snapshot=make_snapshot(make_engine(limit=in_force)))
        draft = make_draft(claim, pod, claims={"a": ClaimMemory(not_held_bytes=GIB)})
        account = draft.accounts["warm-0"]
        verdict = health.Verdict(claim.status.instances[0])
        notes = starting.hold_to_record(account, account.sittings[0], verdict, draft)
        assert [note.message for note in notes] == told
        assert draft.claims["uid-of-a"].not_held_bytes is None

    def test_an_engine_that_stops_with_an_error_does_not_boot(self):
        stopping = make_engine(phase=EnginePhase.STOPPING, ready=False, last_transition=NOW)
        assert is_booting(stopping, make_snapshot())
        assert not is_booting(stopping.model_copy(update={"last_error": "killed"}), make_snapshot())


class TestDivisions:
    def test_a_placement_whose_claim_is_gone_is_dropped(self):
        division = Division(Cause.PLACEMENT, frozenset(), {"b": 100}, {}, newcomer="b", newcomer_seat=SEAT)
        draft = make_draft(make_pod(snapshot=make_snapshot()), cards={"warm-0": CardMemory(division=division)})
        cards.remember_accounts(draft)
        assert (draft.cards["uid-of-warm-0"].division, draft.newcomers) == (None, {})

    @pytest.mark.parametrize(
        ("phase", "goes_on"),
        [
            pytest.param(InstancePhase.FAILED, True, id="it moves here from there"),
            pytest.param(InstancePhase.ACTIVATING, False, id="a write that was thought lost has placed it there"),
        ],
    )
    def test_a_placement_whose_claim_is_placed_elsewhere_goes_on_where_it_is_a_move(self, phase, goes_on):
        claim = make_claim("b", make_instance(phase, pod="warm-1"))
        division = Division(Cause.PLACEMENT, frozenset(), {"b": 100}, {}, newcomer="b", newcomer_seat=claim.seat)
        pods = make_pod(snapshot=make_snapshot()), make_pod("warm-1", error="cut off")
        draft = make_draft(claim, *pods, cards={"warm-0": CardMemory(division=division)})
        cards.remember_accounts(draft)
        assert draft.cards["uid-of-warm-0"].division == (division if goes_on else None)
        assert set(draft.newcomers) == ({"warm-0"} if goes_on else set())

    def test_a_card_without_a_plan_waits_for_its_round(self):
        """Its engines hold more than it has, and nothing changed since it was divided."""
        pod = make_pod(snapshot=make_snapshot(make_engine(mapped=900)))
        composition = make_draft(seated(), pod).accounts["warm-0"].composition
        memory = CardMemory(divided_for=composition, next_round_s=7.0)
        draft = make_draft(seated(), pod, cards={"warm-0": memory})
        cards.start_divisions(draft, {})
        assert (draft.wake_pods_at_s, draft.cards["uid-of-warm-0"]) == ({"warm-0": 7.0}, memory)

    def test_a_newcomer_is_charged_beside_those_who_sit_there(self):
        draft = make_draft(seated(), make_pod(snapshot=make_snapshot(make_engine())))
        account = draft.accounts["warm-0"]
        assert draft.card_of(account) is account.card
        draft.seat("warm-0", "b", SEAT)
        assert [o.claim for o in draft.card_of(account).occupants] == ["a", "b"]

    def test_nothing_is_asked_of_a_pod_that_does_not_run(self):
        fleet = make_draft(seated(), make_pod(is_running=False, snapshot=make_snapshot(make_engine()))).fleet
        plan, _ = decide.decide(fleet, Memory(), moment())
        assert [type(step) for step in plan.steps if not isinstance(step, WriteStatus)] == []

    def test_a_claim_that_somebody_else_lets_go_is_written_to_no_more(self):
        claim = make_claim(deleting_since=NOW, has_finalizer=False)
        plan, _ = decide.decide(make_draft(claim).fleet, Memory(), moment())
        assert plan.steps == ()

    @pytest.mark.parametrize("is_whole", [False, True])
    def test_a_start_that_was_refused_is_taken_back_by_a_pass_that_looks_at_every_pod(self, is_whole):
        """Its claim goes back to the Pod that it left, or wants another."""
        fleet = make_draft(seated(phase=InstancePhase.ACTIVATING, port=0), make_pod(snapshot=make_snapshot())).fleet
        old = make_instance(InstancePhase.FAILED, pod="warm-1")
        memory = Memory(claims={"uid-of-a": ClaimMemory(refused_on={"uid-of-warm-0": "no"}, moved_from=(old,))})
        plan, _ = decide.decide(dataclasses.replace(fleet, is_whole=is_whole), memory, moment())
        assert plan.wants_whole is not is_whole


class TestAudits:
    def test_records_that_sum_past_the_card_are_told(self):
        claims = [make_claim(name, make_instance(limit=400)) for name in "ab"]
        draft = make_draft(*claims, make_pod(snapshot=make_snapshot(make_engine("a"), make_engine("b"))))
        text = "warm-0: footprints and KV limits sum to 1400 bytes, and the card has 1000"
        assert auditing.broken_laws(draft.fleet) == {"warm-0": text}
