"""What a lease's holder and those who wait do in each case, and how long it takes."""

import asyncio

import pytest
from lease_election import SETTINGS, Election, Store

from aibrix_operator.api.term import parse_term
from aibrix_operator.cluster import errors
from aibrix_operator.cluster.lease import Elector, LeaseSettings
from aibrix_operator.sim.loop import run


def elected(story, replicas=2, seed=0):
    """Play ``story(election, leader, other)`` after the first election."""

    async def play():
        election = Election(replicas, seed)
        failures = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
        for replica in election.replicas:
            replica.start()
        leader, _ = await election.until_one_leads(1.0)
        await asyncio.sleep(3)  # those who wait have seen it
        try:
            await story(election, leader, next(r for r in election.replicas if r is not leader))
        finally:
            await election.over()
        assert not failures

    run(play())


@pytest.mark.parametrize("seed", range(20))
def test_a_crashed_leader_is_followed_within_duration_and_a_look(seed):
    async def story(election, leader, other):
        await asyncio.sleep(election.random.uniform(0, 1))
        leader.crash()
        successor, took_s = await election.until_one_leads(SETTINGS.duration_s + SETTINGS.poll_s + 0.2)
        assert successor is other
        assert took_s > SETTINGS.duration_s - SETTINGS.renew_s - 0.2, "not before it can have expired"

    elected(story, seed=seed)


@pytest.mark.parametrize("seed", range(20))
def test_a_leader_that_ends_is_followed_at_the_next_look(seed):
    async def story(election, leader, other):
        await leader.end()
        assert election.store.holder is None
        successor, _ = await election.until_one_leads(SETTINGS.poll_s + 0.2)
        assert successor is other
        assert other.terms[-1] > leader.terms[-1]

    elected(story, seed=seed)


def test_a_leader_that_is_cut_off_stops_before_the_other_starts():
    async def story(election, leader, other):
        leader.network.is_cut = True
        await asyncio.sleep(SETTINGS.deadline_s * 1.01)
        assert not election.leaders
        _, took_s = await election.until_one_leads(2.0)
        assert took_s > 0.1, "for a while nobody leads"
        assert leader.acting is None

    elected(story)


def test_a_leader_that_hangs_in_a_call_stops_in_time_too():
    async def story(election, leader, other):
        leader.network.slowest_s = 1000.0
        await asyncio.sleep(SETTINGS.deadline_s + 0.05)
        assert not leader.is_leader
        assert leader.acting is None

    elected(story)


def test_a_renewal_whose_answer_is_lost_does_not_end_the_term():
    async def story(election, leader, other):
        replace, network = election.store.replace, leader.network
        lost = []

        def lose_one(body):
            kept = replace(body)
            if not lost:
                lost.append(True)
                raise errors.Unavailable("answer was cut")
            return kept

        network.store = type("Losing", (), {"get": election.store.get, "replace": staticmethod(lose_one)})
        await asyncio.sleep(10)
        assert lost
        assert leader.acting is not None
        assert len(leader.terms) == 1

    elected(story)


def test_somebody_who_labels_the_lease_ends_nothing():
    async def story(election, leader, other):
        for _ in range(30):
            election.store.label()
            await asyncio.sleep(0.31)
        assert len(leader.terms) == 1
        assert not other.terms

    elected(story)


def test_a_label_does_not_make_an_expired_lease_live_longer():
    async def story(election, leader, other):
        leader.crash()
        loop = asyncio.get_running_loop()
        began = loop.time()
        while not other.acting:
            election.store.label()
            await asyncio.sleep(0.05)
            assert loop.time() - began < 5

    elected(story)


def test_a_deleted_lease_ends_the_term_and_begins_a_later_one():
    async def story(election, leader, other):
        election.store.delete()
        while len(leader.terms) < 2:
            election.check()
            await asyncio.sleep(0.01)
        assert not other.terms, "who saw a holder waits for it"
        first, second = leader.terms
        assert (second.transitions, second > first) == (0, True)

    elected(story)


def test_when_the_api_server_is_away_nobody_leads_and_afterwards_one_does():
    async def story(election, leader, other):
        for replica in election.replicas:
            replica.network.is_away = True
        await asyncio.sleep(SETTINGS.deadline_s + 0.01)
        assert not election.leaders
        await asyncio.sleep(60)
        for replica in election.replicas:
            replica.network.is_away = False
        successor, _ = await election.until_one_leads(1.0)
        assert successor.terms[-1].transitions == 1

    elected(story)


def test_a_term_has_the_creation_and_the_count_of_the_lease():
    async def story(election, leader, other):
        assert leader.elector.term == parse_term("2026-11-29T08:00:01Z/0")
        await leader.end()
        await election.until_one_leads(1.0)
        assert other.elector.term == parse_term("2026-11-29T08:00:01Z/1")
        assert election.store.lease["spec"]["leaseDurationSeconds"] == 3

    elected(story)


class Alone:
    """One elector, a clock that only the test moves, and a server whose answers it can hold back."""

    def __init__(self):
        self.store, self.now_s = Store(), 0.0
        self.meanwhile = []
        """Called in turn between a write and its answer."""
        self.ends = []
        self.elector = Elector(self, SETTINGS, "me", clock=lambda: self.now_s)
        self.task = asyncio.create_task(self.elector.run(lambda _: None, self._stopped))

    async def get(self, *_):
        return self.store.get()

    async def create(self, resource, namespace, body):
        return await self._answer(self.store.create(body))

    async def replace(self, resource, namespace, name, body):
        return await self._answer(self.store.replace(body))

    async def _answer(self, kept):
        if self.meanwhile:
            self.meanwhile.pop(0)()
        return kept

    async def _stopped(self):
        self.ends.append(self.elector.is_leader)

    def pass_by(self, seconds):
        self.now_s += seconds


def alone(story):
    async def play():
        one = Alone()
        await story(one)
        one.task.cancel()

    run(play())


def test_a_process_that_was_stopped_for_long_does_not_believe_to_lead_when_it_goes_on():
    """Nothing of it runs while it is stopped, so only its clock can tell it."""

    async def story(one):
        await asyncio.sleep(0)
        assert one.elector.is_leader
        one.pass_by(SETTINGS.deadline_s)
        assert not one.elector.is_leader
        assert one.elector.term is None
        await asyncio.sleep(2)
        assert one.ends == [False]
        assert one.elector.term.transitions == 1, "what it sent in its old term is fenced off"

    alone(story)


def test_the_time_of_a_leader_counts_from_its_asking_not_from_the_answer():
    async def story(one):
        one.meanwhile.append(lambda: one.pass_by(1.5))
        await asyncio.sleep(0)
        assert one.elector.is_leader
        one.pass_by(SETTINGS.deadline_s - 1.5)
        assert not one.elector.is_leader

    alone(story)


def test_an_acquisition_that_is_answered_too_late_is_none():
    async def story(one):
        one.meanwhile.append(lambda: one.pass_by(SETTINGS.deadline_s))
        await asyncio.sleep(0)
        assert one.store.holder == "me"
        assert not one.elector.is_leader
        await asyncio.sleep(1)
        assert one.elector.term.transitions == 1

    alone(story)


def test_a_renewal_that_is_answered_after_the_deadline_does_not_bring_a_term_back():
    async def story(one):
        await asyncio.sleep(0)
        first = one.elector.term
        one.pass_by(SETTINGS.deadline_s - 0.1)
        one.meanwhile.append(lambda: one.pass_by(0.2))
        await asyncio.sleep(2)
        assert one.ends == [False]
        assert one.elector.term > first

    alone(story)


def test_who_finds_another_holder_at_a_renewal_stops_and_leaves_the_lease_alone():
    """No clock did this: somebody wrote the Lease by hand."""

    async def story(one):
        await asyncio.sleep(0)
        forged = one.store.get()
        forged["spec"]["holderIdentity"] = "somebody"
        one.store.replace(forged)
        await asyncio.sleep(1.1)
        assert one.ends == [False]
        assert one.store.holder == "somebody"

    alone(story)


@pytest.mark.parametrize(
    ("duration_s", "renew_s", "is_fine"),
    [(3, 1.0, True), (15, 2.0, True), (1, 0.2, True), (3, 1.1, False), (0, 0.1, False), (3, 0.0, False)],
)
def test_a_pace_without_room_for_two_renewals_is_refused(duration_s, renew_s, is_fine):
    def make():
        return LeaseSettings("default", "x", duration_s, renew_s)

    if is_fine:
        assert make().deadline_s < duration_s
    else:
        with pytest.raises(ValueError, match="three times"):
            make()
