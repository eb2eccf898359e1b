"""One leader at a time: hundreds of random schedules of lost, late and slow calls, crashes, stops and partitions."""

import asyncio

import pytest
from lease_election import SETTINGS, Election

from aibrix_operator.sim.loop import run

SCHEDULES = 500
PLAYED_S = 25.0
CALM_S = SETTINGS.duration_s + 2.0


@pytest.mark.parametrize("seed", range(SCHEDULES))
def test_never_two_lead_and_soon_one_does(seed):
    run(play(seed))


async def play(seed):
    election = Election(replicas=2 + seed % 2, seed=seed)
    failures = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    for replica in election.replicas:
        replica.start()
    try:
        await trouble(election)
        await calm(election)
        leader, _ = await election.until_one_leads(CALM_S)
        await asyncio.sleep(3)
        assert election.leaders == [leader], "whom nothing troubles leads on"
    finally:
        await election.over()
    assert not failures, (seed, election.story, failures)
    transitions = [count for count, _ in election.store.history]
    assert transitions == sorted(transitions), "they never fall"
    terms = [term for replica in election.replicas for term in replica.terms]
    assert len(set(terms)) == len(terms), "no two terms are the same"


async def trouble(election):
    chance, loop = election.random, asyncio.get_running_loop()
    while loop.time() < PLAYED_S:
        await asyncio.sleep(chance.expovariate(1 / 1.2))
        replica = chance.choice(election.replicas)
        network = replica.network
        what = chance.choice(
            ["cut", "mend", "away", "lossy", "slow", "crash", "end", "start", "label", "server away", "server back"]
        )
        election.story.append((round(loop.time(), 2), replica.name, what))
        match what:
            case "cut":
                network.is_cut = True
            case "mend":
                network.is_cut = network.is_away = False
                network.lost_share, network.slowest_s = 0.0, 0.03
            case "away":
                network.is_away = True
            case "lossy":
                network.lost_share = chance.uniform(0.05, 0.6)
            case "slow":
                network.slowest_s = chance.choice([0.3, 1.2, 4.0])
            case "crash":
                replica.crash()
            case "end":
                await replica.end()
            case "start" if replica.task is None:
                replica.start()
            case "label":
                election.store.label()
            case "server away" | "server back":
                for other in election.replicas:
                    other.network.is_away = what == "server away"


async def calm(election):
    for replica in election.replicas:
        network = replica.network
        network.is_cut = network.is_away = False
        network.lost_share, network.slowest_s = 0.0, 0.03
        if replica.task is None:
            replica.start()
