"""Any sequence of requests and ends, in virtual time: what is held is what goes on, and nothing is ever negative."""

import asyncio
import random

import pytest
import redis
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule
from shared_limits import Gateway, client, gateways, settled
from traffic_builders import charge, endpoints, forward, request, rps, user

from aibrix_operator.gateway.leases import Leases
from aibrix_operator.gateway.limits.limiter import Denied, Granted, Limit
from aibrix_operator.gateway.limits.memory import MemoryLimiter
from aibrix_operator.gateway.loads import Loads
from aibrix_operator.gateway.metrics import Metrics
from aibrix_operator.gateway.settlement import Ended, StillRunning
from aibrix_operator.gateway.settling import Settling
from aibrix_operator.gateway.token_sizes import TokenSizes
from aibrix_operator.gateway.view import Model

PODS = endpoints(3)
CAP = 2
WINDOW_S = 30
USERS = {name: user(name, rpm=rpm, tpm=tpm) for name, rpm, tpm in (("ann", 4, 100), ("bob", 100, 60))}
LIMITED = st.fixed_dictionaries(
    {},
    optional={
        "user": st.sampled_from(list(USERS.values())),
        "tokens": st.integers(0, 60),
        "rps": st.just(rps(3, WINDOW_S)),
        "inflight": st.just(CAP),
    },
)
WHERE = st.permutations(PODS).flatmap(lambda pods: st.integers(0, len(pods)).map(lambda n: pods[:n]))
TOKENS = st.one_of(st.none(), st.integers(0, 150))
STEPS = settings(max_examples=40, stateful_step_count=40)


class Traffic(RuleBasedStateMachine):
    """One gateway with its counts in memory: leases, loads, slots and metrics tell the same story."""

    running = Bundle("running")

    def __init__(self):
        super().__init__()
        self.now_s = 0.0
        self.loads = Loads()
        self.limiter = MemoryLimiter()
        self.leases = Leases(self.loads, 30)
        self.metrics = Metrics(lambda: {"m": Model("m", PODS)}, "gw-0")
        self.settling = Settling(self.leases, self.limiter, self.metrics, TokenSizes())
        self.open = {}
        self.routings = []

    @rule(target=running, where=WHERE.filter(len), limits=LIMITED)
    def send(self, where, limits):
        answer = self.limiter.admit(charge(self.now_s, to=where, **limits))
        if isinstance(answer, Denied):
            return multiple()
        of = forward(where[0])
        lease = self.leases.open(of, answer, request(stream=True), self.now_s)
        self.metrics.admitted(lease, 0.0001)
        self.routings.append(of.routing)
        self.open[lease.id] = [lease, self.now_s + 30]
        return lease

    @rule(where=WHERE, limits=LIMITED)
    def send_and_fail_to_forward(self, where, limits):
        answer = self.limiter.admit(charge(self.now_s, to=where, **limits))
        if isinstance(answer, Granted):
            self.limiter.refund(answer, self.now_s)

    @rule(lease=running, status=st.sampled_from([0, 200, 429, 500]), total=TOKENS, left=st.booleans())
    def tell_an_end(self, lease, status, total, left):
        flags = frozenset({"DC"} if left else ())
        self.settling.take([Ended(lease.id, status, flags, 1.0, 0.1, 0, 900, total_tokens=total)], self.now_s)
        self.open.pop(lease.id, None)

    @rule(lease=running)
    def tell_that_it_goes_on(self, lease):
        self.settling.take([StillRunning(lease.id)], self.now_s)
        if lease.id in self.open:
            self.open[lease.id][1] = self.now_s + 30

    @rule(seconds=st.integers(1, 10))
    def let_time_pass(self, seconds):
        self.now_s += seconds
        self.settling.sweep(self.now_s)
        self.open = {key: kept for key, kept in self.open.items() if kept[1] > self.now_s}

    @invariant()
    def counts_are_those_of_what_goes_on(self):
        held = [lease for lease, _ in self.open.values()]
        for pod in PODS:
            assert self.loads.count(pod) == sum(lease.endpoint is pod for lease in held)
            slots = self.limiter.slots.count(pod.key)
            assert slots == sum(lease.granted.holds_slot and lease.endpoint is pod for lease in held)
            assert 0 <= slots <= CAP
        assert len(self.leases) == len(held) == sum(row.in_flight for row in self.metrics._rows.values())

    @invariant()
    def strategies_hear_of_each_end_once(self):
        assert sum(len(routing.ended_with) for routing in self.routings) == len(self.routings) - len(self.open)
        assert all(len(routing.ended_with) <= 1 for routing in self.routings)

    def teardown(self):
        for _ in range(10):
            self.let_time_pass(5)
        assert (self.loads.own(), self.limiter.slots.held(), len(self.leases)) == ({}, {}, 0)
        assert not self.limiter._open


class TestTraffic(Traffic.TestCase):
    settings = STEPS


@pytest.fixture(scope="class")
def server_url(request, redis_server):
    request.cls.url = Agreement.url = redis_server.url


class Agreement(RuleBasedStateMachine):
    """Two gateways that share a Redis grant and refuse as one gateway does that counts in memory."""

    url = ""
    granted = Bundle("granted")

    def __init__(self):
        super().__init__()
        with redis.Redis.from_url(self.url) as asking:
            asking.flushall()
        self.runner = asyncio.Runner()
        self.gateways = [self.runner.run(self.start()) for _ in range(2)]
        self.memory = MemoryLimiter()
        self.now_s = 0.0

    async def start(self):
        gateway = Gateway(self.url)
        await gateway.store.start()
        return gateway

    @rule(target=granted, by=st.integers(0, 1), where=WHERE, limits=LIMITED)
    def ask(self, by, where, limits):
        of = charge(self.now_s, to=where, **limits)
        expected = self.memory.admit(of)
        found = self.runner.run(self.gateways[by].admit(of))
        assert found == expected
        return (by, found) if isinstance(found, Granted) else multiple()

    @rule(one=consumes(granted), tokens=TOKENS)
    def settle(self, one, tokens):
        by, granted = one
        self.memory.settle(granted, tokens, self.now_s)
        self.runner.run(self.tell(by, lambda limiter: limiter.settle(granted, tokens, self.now_s)))

    @rule(one=consumes(granted))
    def refund(self, one):
        by, granted = one
        self.memory.refund(granted, self.now_s)
        self.runner.run(self.tell(by, lambda limiter: limiter.refund(granted, self.now_s)))

    @rule(seconds=st.integers(1, 20))
    def let_time_pass(self, seconds):
        self.now_s += seconds

    async def tell(self, by, end):
        end(self.gateways[by].limiter)
        await settled(self.gateways[by])

    def teardown(self):
        for gateway in self.gateways:
            self.runner.run(gateway.store.stop())
        with redis.Redis.from_url(self.url) as asking:
            counts = [int(asking.get(key)) for key in asking.scan_iter("*_CURRENT:*")]
        assert all(count >= 0 for count in counts)
        self.runner.close()


@pytest.mark.usefixtures("server_url")
class TestAgreement(Agreement.TestCase):
    settings = settings(STEPS, max_examples=15, stateful_step_count=30)


@pytest.mark.acceptance("GW-84")
@pytest.mark.parametrize("seed", range(3))
async def test_three_gateways_in_a_hurry_never_hold_more_than_the_cap(redis_server, seed):
    draw = random.Random(seed)
    held = dict.fromkeys(PODS, 0)
    most, refused = 0, 0

    async def client_of(gateway):
        nonlocal most, refused
        for _ in range(15):
            where = draw.sample(PODS, draw.randint(1, 3))
            answer = await gateway.admit(charge(1, to=where, inflight=CAP))
            if isinstance(answer, Denied):
                assert answer.limit is Limit.INFLIGHT
                refused += 1
                continue
            held[answer.endpoint] += 1
            most = max(most, *held.values())
            for _ in range(draw.randint(0, 20)):
                await asyncio.sleep(0)
            held[answer.endpoint] -= 1
            gateway.limiter.settle(answer, None, 1)

    async with client(redis_server.url) as asking:
        await asking.flushall()
        async with gateways(redis_server.url, 3) as three:
            await asyncio.gather(*(client_of(gateway) for gateway in three for _ in range(8)))
            for gateway in three:
                await settled(gateway)
            assert (most, [g.limiter.slots.held() for g in three]) == (CAP, [{}, {}, {}])
            assert not any(
                (g.limiter._shared, g.limiter._told_s, g.limiter._local._open) != ({}, {}, set()) for g in three
            )
            assert refused > 0
            assert await asking.keys("aibrix:rrq:default/*") == []
