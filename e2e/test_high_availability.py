"""Two replicas of the operator: one leads, the other takes over in seconds, and a former leader changes nothing."""

from __future__ import annotations

import http.client
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from aibrix_operator.api import names
from aibrix_operator.api.term import TERM_HEADER
from aibrix_operator.sandbox import state, up
from aibrix_operator.sandbox.operators import operator_name
from aibrix_operator.sandbox.state import Sandbox
from e2e.api import ApiServer, Refused, eventually
from e2e.pool import CLAIMS, GIB, SMALL_CARD, Pool, WarmPod, children_of, conditions, kill, make_pool, phase, reason

LEASE = "/apis/coordination.k8s.io/v1/namespaces/default/leases/aibrix-operator"
REPLICAS = 2
ROUNDS = 5
TAKEN_OVER_WITHIN_S = 5.0
HANDED_OVER_WITHIN_S = 3.0
QUIET_S = 3.0
ENGINE = {"boot_seconds": 0.3, "footprint_bytes": GIB, "asleep_footprint_bytes": GIB // 4}


@dataclass(frozen=True)
class Operator:
    """One process of the operator, as long as it lives."""

    pid: int
    address: str

    def probe(self) -> dict[str, Any]:
        """What its readiness probe says; empty while it does not answer."""
        connection = http.client.HTTPConnection(self.address, timeout=1)
        try:
            connection.request("GET", "/readyz")
            answer: dict[str, Any] = json.loads(connection.getresponse().read())
        except OSError:
            return {}
        finally:
            connection.close()
        return answer

    @property
    def says_it_leads(self) -> bool:
        return self.probe().get("leader", False)


def operators(sandbox: Sandbox) -> list[Operator]:
    """The processes below the supervisors that play the Deployment."""
    table = sandbox.table.read()
    found = []
    for replica in range(1, REPLICAS + 1):
        for pid in children_of(table[operator_name(replica)].pid):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
            if "--liveness" in words:  # else it has only been forked
                found.append(Operator(pid, urlsplit(words[words.index("--liveness") + 1]).netloc))
    return found


def holder(api: ApiServer) -> str:
    return api.get(LEASE)["spec"].get("holderIdentity", "")


def holds(operator: Operator, api: ApiServer) -> bool:
    return holder(api).split("_")[1:2] == [str(operator.pid)]


def term(api: ApiServer) -> str:
    """As the leader tells it to runtimes."""
    lease = api.get(LEASE)
    return f"{lease['metadata']['creationTimestamp']}/{lease['spec']['leaseTransitions']}"


def both(sandbox: Sandbox, api: ApiServer) -> tuple[Operator, Operator]:
    """The leader and the other, once both are ready."""

    def look() -> tuple[Operator, Operator] | None:
        found = operators(sandbox)
        if len(found) < REPLICAS or any(one.probe().get("status") != "ready" for one in found):
            return None
        leaders = [one for one in found if holds(one, api) and one.says_it_leads]
        if len(leaders) != 1:
            return None
        (leader,) = leaders
        (other,) = (one for one in found if one != leader)
        return leader, other

    pair: tuple[Operator, Operator] = eventually("two replicas are ready and one leads", look, 30.0)
    return pair


class Watchman(threading.Thread):
    """Asks the replicas all the time who leads, and notes when two did."""

    def __init__(self, sandbox: Sandbox) -> None:
        super().__init__(daemon=True)
        self.looks = 0
        self.twice: list[str] = []
        self._sandbox = sandbox
        self._is_over = threading.Event()

    def __enter__(self) -> Watchman:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self.join()

    def run(self) -> None:
        while not self._is_over.wait(0.05):
            try:
                found = operators(self._sandbox)
            except OSError:  # one ended while it was looked up
                continue
            # One leads before and after the other is asked: only then did both lead at once.
            for one in found:
                for other in found:
                    if one != other and one.says_it_leads and other.says_it_leads and one.says_it_leads:
                        self.twice.append(f"{one} and {other}")
            self.looks += 1


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    profiles = tmp_path_factory.mktemp("profiles") / "profiles.json"
    profiles.write_text(json.dumps({"default": ENGINE}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIBRIX_SIM_PROFILES", str(profiles))
        options = up.Options(cards=(SMALL_CARD,), operators=REPLICAS, with_pool=False)
        made = up.up(f"e2e-two-{os.getpid()}", options, report=print)
    yield made
    if state.load(made.name) is not None:
        up.down(made.name)


@pytest.fixture(scope="module")
def api(sandbox: Sandbox) -> Iterator[ApiServer]:
    server = ApiServer(sandbox.kubeconfig)
    yield server
    server.close()


@pytest.fixture(scope="module")
def one_card(sandbox: Sandbox, api: ApiServer) -> Pool:
    made = make_pool(sandbox, api, "two", namespace="two")
    made.wait_ready(1)
    return made


@pytest.fixture
def pool(one_card: Pool) -> Iterator[Pool]:
    yield one_card
    one_card.clean_up()


def test_a_killed_leader_is_followed_by_the_other_within_five_seconds(sandbox, api, pool):
    """The new leader decides for two claims that nobody saw before: one is placed, one is told why not."""
    took: list[float] = []
    with Watchman(sandbox) as watchman:
        for number in range(ROUNDS):
            leader, other = both(sandbox, api)
            before = term(api)

            kill(leader.pid)

            killed_s = time.monotonic()
            fits, too_large = f"fits-{number}", f"too-large-{number}"
            pool.apply(fits, footprint="2Gi")
            pool.apply(too_large, footprint="200Gi")
            pool.wait(fits, "is placed", lambda c: c.get("status", {}).get("instances"), TAKEN_OVER_WITHIN_S)
            pool.wait(too_large, "is told", lambda c: reason(c, "Scheduled"), TAKEN_OVER_WITHIN_S)
            took.append(time.monotonic() - killed_s)
            assert holds(other, api)
            assert term(api) > before
            pool.wait_active(fits)
            pool.clean_up(too_large)
    print("seconds from the kill to the decisions:", *(f"{seconds:.1f}" for seconds in took))
    assert max(took) <= TAKEN_OVER_WITHIN_S
    assert watchman.looks > ROUNDS
    assert not watchman.twice
    # All that the five leaders started is still there.
    assert {phase(pool.claim(f"fits-{number}")) for number in range(ROUNDS)} == {"Active"}


def test_a_leader_that_is_asked_to_end_hands_over_at_once(sandbox, api):
    leader, other = both(sandbox, api)

    os.kill(leader.pid, signal.SIGTERM)

    eventually("the other leads", lambda: other.says_it_leads, HANDED_OVER_WITHIN_S)


def test_a_stopped_leader_that_goes_on_changes_nothing(sandbox, api, pool):
    pool.apply("a", footprint="2Gi")
    pool.apply("waits", footprint="200Gi")  # something that a leader looks at again and again
    pool.wait_active("a")
    former, leader = both(sandbox, api)
    old_term, old_claim = term(api), pool.claim("a")

    os.kill(former.pid, signal.SIGSTOP)
    try:
        eventually("the other leads", lambda: leader.says_it_leads, TAKEN_OVER_WITHIN_S)
        pool.apply("b", footprint="2Gi")
        pool.wait_active("b")

        # What the former leader could still send is refused, by the runtime and by the API server.
        (pod,) = pool.pods()
        assert "another replica leads now" in refused_in_term(pod, old_term, "deactivate", model_name="b")
        assert "b" in pod.engines()
        with pytest.raises(Refused) as refusal:
            overwrite_status(pool, old_claim)
        assert refusal.value.status == 409
        settled = eventually("nothing changes", lambda: unchanged(pool, 1.0), 20.0)
    finally:
        os.kill(former.pid, signal.SIGCONT)

    answer = eventually("it answers again", former.probe)
    assert answer["leader"] is False
    assert unchanged(pool, QUIET_S) == settled
    assert not former.says_it_leads
    assert leader.says_it_leads

    kill(leader.pid)

    eventually("it leads again, in a later term", lambda: former.says_it_leads, TAKEN_OVER_WITHIN_S)
    assert term(api) > old_term
    pool.delete("a")
    eventually("it has taken up the work", lambda: pool.is_gone("a"), 60.0)
    pool.applied.remove("a")
    assert phase(pool.claim("b")) == "Active"


def refused_in_term(pod: WarmPod, of_term: str, action: str, **body: Any) -> str:
    """What the sidecar says to a call of that term."""
    connection = http.client.HTTPConnection(pod.address, names.RUNTIME_PORT, timeout=10)
    try:
        headers = {"Content-Type": "application/json", TERM_HEADER: of_term}
        connection.request("POST", f"/v1/runtime/models/{action}", json.dumps(body), headers)
        answer = connection.getresponse()
        said: str = json.loads(answer.read())["detail"]
        assert answer.status == 409
        return said
    finally:
        connection.close()


def overwrite_status(pool: Pool, seen: dict[str, Any]) -> None:
    """Write the status of a claim as it was once seen, as the operator writes it."""
    metadata = {"resourceVersion": seen["metadata"]["resourceVersion"]}
    path = f"{CLAIMS.format(pool.namespace)}/{seen['metadata']['name']}/status"
    pool.api.patch(path, {"metadata": metadata, "status": {"phase": "Pending"}})


def unchanged(pool: Pool, for_s: float) -> Any:
    """What claims, routes and engines are, when they stay so for a while; None when they do not."""
    before, until_s = what_is_there(pool), time.monotonic() + for_s
    while time.monotonic() < until_s:
        if what_is_there(pool) != before:
            return None
    return before


def what_is_there(pool: Pool) -> Any:
    (pod,) = pool.pods()
    claims = {name: pool.claim(name) for name in sorted(pool.applied)}
    told = {
        name: (phase(claim), claim["status"].get("instances"), sorted(conditions(claim)))
        for name, claim in claims.items()
    }
    engines = {
        model: (e["phase"], e["port"], e["kv_capacity_bytes"], pod.pid_of(model)) for model, e in pod.engines().items()
    }
    return told, pool.annotations(), engines
