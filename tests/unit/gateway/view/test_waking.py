"""Who asks for a sleeping engine, how often, and over which version of its Pod."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from gateway_objects import until
from prometheus_client import CollectorRegistry

from aibrix_operator.cluster import errors
from aibrix_operator.gateway.view import WakeTarget
from aibrix_operator.gateway.waking import NOT_AGAIN_FOR_S, Waker
from aibrix_operator.runtime_api.outcome import Done, NotSent
from aibrix_operator.runtime_api.wire import OperationResponse

TARGET = WakeTarget("default", "w", "uid-w", "41", "c", "m", False, True, "http://10.0.0.1:8080")


class Pods:
    """An API server with one Pod: a write over another version than its own is refused."""

    def __init__(self, version=41):
        self.version = version
        self.annotations = {}
        self.writes = []
        self.failure = None
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def patch_metadata(self, resource, namespace, name, metadata, resource_version):
        self.writes.append((resource.plural, namespace, name, metadata, resource_version))
        await self.go_on.wait()
        if self.failure is not None:
            raise self.failure
        if int(resource_version) != self.version:
            raise errors.Conflict("changed", status=409)
        self.version += 1
        self.annotations |= metadata["annotations"]
        return {}


class Runtimes:
    """Sidecars of an older controller."""

    def __init__(self):
        self.calls = []
        self.outcome = Done(OperationResponse(model_name="m", operation_id="o", applied=True, phase="active"))
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def wake(self, base, request, deadline_s):
        self.calls.append((base, request.model_name, request.operation_id, deadline_s))
        await self.go_on.wait()
        return self.outcome


class Gateway:
    """One replica's waker, with a clock of its own."""

    def __init__(self, pods, runtimes=None):
        self.now_s = 1000.0
        self.registry = CollectorRegistry()
        wall = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
        self.not_asked = []
        self.waker = Waker(
            *(pods, runtimes or Runtimes(), self.registry),
            not_asked=self.not_asked.append,
            clock=lambda: self.now_s,
            wall=lambda: wall,
        )

    async def ask(self, target=TARGET, times=1):
        for _ in range(times):
            self.waker.wake(target)
        await self.settle()

    async def settle(self):
        for _ in range(5):
            await asyncio.sleep(0)

    def counted(self, result):
        return self.registry.get_sample_value("aibrix_gateway_wake_requests_total", {"result": result})


@pytest.mark.acceptance("GW-101")
async def test_gw101_fifty_requests_write_one_annotation_over_the_version_that_was_read():
    pods = Pods()
    gateway = Gateway(pods)
    await gateway.ask(times=50)
    metadata = {"annotations": {"wake.modelclaim.aibrix.ai/c": "2026-01-02T03:04:05Z"}}
    assert pods.writes == [("pods", "default", "w", metadata, "41")]
    assert gateway.counted("written") == 1


@pytest.mark.acceptance("GW-101")
async def test_gw101_it_is_not_rewritten_for_30_s_over_the_same_version_and_then_it_is():
    pods = Pods()
    gateway = Gateway(pods)
    await gateway.ask()
    gateway.now_s += 10
    await gateway.ask(times=50)
    assert len(pods.writes) == 1
    gateway.now_s += 21
    pods.version = 41  # as if the write had been lost with the server's last breath
    await gateway.ask(times=50)
    assert len(pods.writes) == 2


async def test_a_pod_that_carries_a_request_gets_no_other():
    pods = Pods()
    await Gateway(pods).ask(replace(TARGET, already_asked=True))
    assert pods.writes == []


@pytest.mark.acceptance("9.24")
async def test_a_request_that_was_taken_back_is_written_anew_at_once():
    pods = Pods()
    gateway = Gateway(pods)
    await gateway.ask()
    pods.version = 43  # 42 was our write, 43 took it back
    await gateway.ask(replace(TARGET, resource_version="43"))
    assert [write[-1] for write in pods.writes] == ["41", "43"]


async def test_of_three_replicas_that_read_the_same_version_one_writes():
    pods = Pods()
    gateways = [Gateway(pods) for _ in range(3)]
    await asyncio.gather(*(gateway.ask(times=20) for gateway in gateways))
    assert pods.version == 42
    assert sorted(gateway.counted("written") or 0 for gateway in gateways) == [0, 0, 1]
    assert sum(gateway.counted("conflict") or 0 for gateway in gateways) == 2


@pytest.mark.acceptance("9.24")
async def test_a_refused_write_is_not_remembered():
    pods = Pods(version=42)
    gateway = Gateway(pods)
    await gateway.ask()
    await gateway.ask(replace(TARGET, resource_version="42"))
    assert pods.version == 43


@pytest.mark.parametrize("failure", [errors.Unavailable("away"), errors.Denied("no"), errors.NotFound("gone")])
async def test_a_failed_write_allows_the_next(failure):
    pods = Pods()
    pods.failure = failure
    gateway = Gateway(pods)
    await gateway.ask()
    pods.failure = None
    await gateway.ask()
    assert pods.version == 42
    assert (gateway.counted("failed"), gateway.counted("written")) == (1, 1)


async def test_one_write_is_under_way_at_a_time_and_it_is_given_up_after_its_time(monkeypatch):
    monkeypatch.setattr("aibrix_operator.gateway.waking.WRITE_WITHIN_S", 0.01)
    pods = Pods()
    pods.go_on.clear()
    gateway = Gateway(pods)
    await gateway.ask(times=3)
    assert len(pods.writes) == 1
    await until(lambda: gateway.counted("failed"))
    await gateway.settle()
    monkeypatch.undo()  # the next has time enough
    pods.go_on.set()
    await gateway.ask()
    assert pods.version == 42


@pytest.mark.parametrize("failure", [errors.Unavailable("away"), errors.Conflict("changed", status=409)])
async def test_those_who_wait_for_an_engine_hear_that_it_could_not_be_asked_for(failure, monkeypatch):
    monkeypatch.setattr("aibrix_operator.gateway.waking.AGAIN_AFTER_S", 0.001)
    pods = Pods()
    pods.failure = failure
    gateway = Gateway(pods)
    await gateway.ask(times=3)
    await until(lambda: gateway.not_asked == ["m"])
    pods.failure = None
    await gateway.ask()
    assert pods.version == 42
    assert gateway.not_asked == ["m"]


async def test_engines_of_one_pod_and_pods_of_one_name_are_asked_for_by_themselves():
    pods = Pods()
    gateway = Gateway(pods)
    pods.go_on.clear()
    await gateway.ask()
    await gateway.ask(replace(TARGET, claim="d", model="n"))
    await gateway.ask(replace(TARGET, uid="another", resource_version="99"))
    assert len(pods.writes) == 3
    await gateway.waker.close()


@pytest.mark.acceptance("9.24")
async def test_what_was_written_is_forgotten_after_its_time():
    gateway = Gateway(Pods())
    await gateway.ask()
    gateway.now_s += NOT_AGAIN_FOR_S
    await gateway.ask(replace(TARGET, claim="d", resource_version="42"))
    assert list(gateway.waker._written) == [("uid-w", "d", "m")]


async def test_an_older_controllers_runtime_is_woken_directly_one_call_at_a_time():
    pods, runtimes = Pods(), Runtimes()
    runtimes.go_on.clear()
    gateway = Gateway(pods, runtimes)
    old = replace(TARGET, by_request=False)
    await gateway.ask(old, times=20)
    await gateway.ask(replace(old, resource_version="50"))
    ((base, model, operation, deadline_s),) = runtimes.calls
    assert (base, model, deadline_s) == ("http://10.0.0.1:8080", "m", 120.0)
    assert operation.startswith("gateway-wake/uid-w/m/")
    runtimes.go_on.set()
    await gateway.settle()
    await gateway.ask(old)
    assert len({call[2] for call in runtimes.calls}) == 2
    assert pods.writes == []


async def test_a_runtime_that_is_not_reached_is_counted_as_failed():
    runtimes = Runtimes()
    runtimes.outcome = NotSent("no connection")
    gateway = Gateway(Pods(), runtimes)
    await gateway.ask(replace(TARGET, by_request=False))
    assert gateway.counted("failed") == 1


async def test_closing_ends_what_is_under_way():
    pods = Pods()
    pods.go_on.clear()
    gateway = Gateway(pods)
    await gateway.ask()
    await gateway.waker.close()
    pods.go_on.set()
    await gateway.settle()
    assert pods.version == 41
