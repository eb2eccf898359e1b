"""What reaches the API server of what was emitted; in virtual time, against a writer that keeps and refuses."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from cluster_virtual_time import run

from aibrix_operator.cluster import errors, events
from aibrix_operator.cluster.events import EventRecorder, ObjectReference
from aibrix_operator.cluster.resource import EVENTS, Object, Resource

START = datetime(2026, 11, 30, 8, tzinfo=UTC)
CLAIM = ObjectReference("model.aibrix.ai/v1alpha1", "ModelClaim", "default", "qwen", "uid-1")
OTHER = ObjectReference("model.aibrix.ai/v1alpha1", "ModelClaim", "default", "llama", "uid-2")


class Writer:
    """Keeps Events by name, as the API server does; ``refuses`` is raised call by call before anything is done."""

    def __init__(self, takes_s: float = 0.0) -> None:
        self.stored: dict[str, Object] = {}
        self.calls: list[str] = []
        self.refuses: list[Exception | None] = []
        self.answer_is_lost = False
        self.takes_s = takes_s

    async def create(self, resource: Resource, namespace: str, body: Object) -> Object:
        await self._exchange("create", resource)
        name = body["metadata"]["name"]
        if name in self.stored:
            raise errors.AlreadyExists(name)
        self.stored[name] = {**body, "metadata": {**body["metadata"], "namespace": namespace}}
        if self.answer_is_lost:
            self.answer_is_lost = False
            raise errors.Unavailable("answer was cut")
        return body

    async def patch(self, resource: Resource, namespace: str, name: str, patch: Object) -> Object:
        await self._exchange("patch", resource)
        if name not in self.stored:
            raise errors.NotFound(name)
        self.stored[name].update(patch)
        return self.stored[name]

    async def _exchange(self, call: str, resource: Resource) -> None:
        assert resource == EVENTS
        self.calls.append(call)
        await asyncio.sleep(self.takes_s)
        refusal = self.refuses.pop(0) if self.refuses else None
        if refusal is not None:
            raise refusal

    def counts(self) -> list[tuple[str, int]]:
        return [(event["message"], event["count"]) for event in self.stored.values()]


def recorder(writer: Writer) -> EventRecorder:
    made = EventRecorder(
        writer,
        component="aibrix-operator",
        instance="aibrix-operator-0",
        now=lambda: START + timedelta(seconds=asyncio.get_running_loop().time()),
    )
    made.start()
    return made


def test_event_is_what_kubectl_describe_looks_for():
    async def main() -> None:
        writer = Writer()
        recorder(writer).emit(CLAIM, "Warning", "NoMatchingPods", "no available candidate warm pod", "Place")
        await asyncio.sleep(1)
        (name, event), *rest = writer.stored.items()
        assert not rest
        assert name.startswith("qwen.")
        assert event == {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": "default"},
            "involvedObject": {
                "apiVersion": "model.aibrix.ai/v1alpha1",
                "kind": "ModelClaim",
                "namespace": "default",
                "name": "qwen",
                "uid": "uid-1",
            },
            "type": "Warning",
            "reason": "NoMatchingPods",
            "message": "no available candidate warm pod",
            "action": "Place",
            "count": 1,
            "firstTimestamp": "2026-11-30T08:00:00Z",
            "lastTimestamp": "2026-11-30T08:00:00Z",
            "source": {"component": "aibrix-operator"},
            "reportingComponent": "aibrix-operator",
            "reportingInstance": "aibrix-operator-0",
        }

    run(main())


def test_equal_events_become_one_object_with_a_count_and_a_later_time():
    async def main() -> None:
        writer = Writer()
        events_of = recorder(writer)
        for _ in range(3):
            events_of.emit(CLAIM, "Normal", "Woken", "model m woke", "Wake")
            await asyncio.sleep(10)
        (event,) = writer.stored.values()
        assert (event["count"], event["firstTimestamp"], event["lastTimestamp"]) == (
            3,
            "2026-11-30T08:00:00Z",
            "2026-11-30T08:00:20Z",
        )
        assert writer.calls == ["create", "patch", "patch"]

    run(main())


def test_repeats_that_wait_for_the_server_are_one_write():
    async def main() -> None:
        writer = Writer(takes_s=1)
        events_of = recorder(writer)
        for _ in range(20):
            events_of.emit(CLAIM, "Normal", "Woken", "model m woke", "Wake")
            await asyncio.sleep(0.01)
        await asyncio.sleep(10)
        assert writer.calls == ["create", "patch"]
        assert writer.counts() == [("model m woke", 20)]

    run(main())


@pytest.mark.parametrize(
    ("regarding", "kind", "reason", "message"),
    [
        pytest.param(OTHER, "Normal", "Woken", "m", id="object"),
        pytest.param(CLAIM, "Warning", "Woken", "m", id="type"),
        pytest.param(CLAIM, "Normal", "Sleeping", "m", id="reason"),
        pytest.param(CLAIM, "Normal", "Woken", "n", id="message"),
    ],
)
def test_events_that_differ_in_anything_are_objects_of_their_own(regarding, kind, reason, message):
    async def main() -> None:
        writer = Writer()
        events_of = recorder(writer)
        events_of.emit(CLAIM, "Normal", "Woken", "m", "Wake")
        events_of.emit(regarding, kind, reason, message, "Wake")
        await asyncio.sleep(1)
        assert [event["count"] for event in writer.stored.values()] == [1, 1]

    run(main())


def test_object_has_a_burst_of_25_and_then_one_in_five_minutes():
    async def main() -> None:
        writer = Writer()
        events_of = recorder(writer)
        for number in range(40):
            events_of.emit(CLAIM, "Normal", "Woken", f"time {number}", "Wake")
        events_of.emit(OTHER, "Normal", "Woken", "another object has its own", "Wake")
        await asyncio.sleep(299)
        events_of.emit(CLAIM, "Normal", "Woken", "too early", "Wake")
        await asyncio.sleep(2)
        events_of.emit(CLAIM, "Normal", "Woken", "in time", "Wake")
        events_of.emit(CLAIM, "Normal", "Woken", "one too many", "Wake")
        await asyncio.sleep(1)
        messages = [message for message, _ in writer.counts()]
        assert messages == [f"time {number}" for number in range(25)] + ["another object has its own", "in time"]
        assert events_of.dropped == 15 + 2

    run(main())


def test_event_that_the_server_has_forgotten_is_made_anew_and_counts_on():
    async def main() -> None:
        writer = Writer()
        events_of = recorder(writer)
        events_of.emit(CLAIM, "Normal", "Woken", "m", "Wake")
        await asyncio.sleep(3700)
        writer.stored.clear()
        events_of.emit(CLAIM, "Normal", "Woken", "m", "Wake")
        await asyncio.sleep(1)
        assert writer.counts() == [("m", 2)]

    run(main())


def test_server_that_is_away_for_a_moment_loses_nothing():
    async def main() -> None:
        writer = Writer()
        writer.refuses = [errors.Unavailable("away"), errors.Unavailable("away", retry_after_s=7)]
        events_of = recorder(writer)
        events_of.emit(CLAIM, "Normal", "Woken", "m", "Wake")
        await asyncio.sleep(7)
        assert writer.counts() == []
        await asyncio.sleep(1)
        assert writer.counts() == [("m", 1)]
        assert events_of.dropped == 0

    run(main())


def test_answer_that_was_lost_makes_no_second_event():
    async def main() -> None:
        writer = Writer()
        writer.answer_is_lost = True
        events_of = recorder(writer)
        events_of.emit(CLAIM, "Normal", "Woken", "m", "Wake")
        await asyncio.sleep(10)
        assert writer.counts() == [("m", 1)]
        assert writer.calls == ["create", "create"]
        assert events_of.dropped == 0

    run(main())


def test_try_that_a_repeat_has_overtaken_is_not_made():
    async def main() -> None:
        writer = Writer()
        writer.refuses = [errors.Unavailable("away")]
        events_of = recorder(writer)
        events_of.emit(CLAIM, "Normal", "Woken", "m", "Wake")
        await asyncio.sleep(0.1)
        events_of.emit(CLAIM, "Normal", "Woken", "m", "Wake")
        await asyncio.sleep(10)
        assert writer.counts() == [("m", 2)]
        assert writer.calls == ["create", "create"]

    run(main())


def test_repeat_during_a_refused_write_goes_with_it(caplog):
    async def main() -> None:
        writer = Writer(takes_s=1)
        writer.refuses = [errors.Invalid("bad")]
        events_of = recorder(writer)
        events_of.emit(CLAIM, "Normal", "Woken", "m", "Wake")
        await asyncio.sleep(0.1)
        events_of.emit(CLAIM, "Normal", "Woken", "m", "Wake")
        await asyncio.sleep(10)
        assert (events_of.dropped, writer.calls) == (2, ["create"])

    run(main())
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_server_that_stays_away_costs_the_event_and_nothing_else():
    async def main() -> None:
        writer = Writer()
        writer.refuses = [errors.Unavailable("away")] * 100
        events_of = recorder(writer)
        events_of.emit(CLAIM, "Normal", "Woken", "m", "Wake")
        await asyncio.sleep(600)
        assert events_of.dropped == 1
        assert len(writer.calls) == 6
        writer.refuses.clear()
        events_of.emit(CLAIM, "Normal", "Woken", "m", "Wake")
        await asyncio.sleep(1)
        assert writer.counts() == [("m", 1)]

    run(main())


@pytest.mark.parametrize("refusal", [errors.Invalid("bad"), errors.NotFound("namespace is gone")])
def test_refused_event_is_dropped_at_once(refusal):
    async def main() -> None:
        writer = Writer()
        writer.refuses = [refusal]
        events_of = recorder(writer)
        events_of.emit(CLAIM, "Normal", "Woken", "m", "Wake")
        await asyncio.sleep(600)
        assert (events_of.dropped, writer.calls) == (1, ["create"])

    run(main())


def test_more_than_can_wait_is_dropped_and_counted_while_the_caller_goes_on(monkeypatch):
    monkeypatch.setattr(events, "_MAX_WAITING", 10)

    async def main() -> None:
        writer = Writer(takes_s=1000)
        events_of = recorder(writer)
        for number in range(15):
            about = ObjectReference("v1", "Pod", "default", f"pod-{number}", f"uid-{number}")
            events_of.emit(about, "Normal", "Seen", "m", "See")
        assert events_of.dropped == 5
        await events_of.stop(grace_s=5)
        assert asyncio.get_running_loop().time() == 5
        assert events_of.dropped == 15

    run(main())


def test_stop_writes_what_waits():
    async def main() -> None:
        writer = Writer(takes_s=1)
        events_of = recorder(writer)
        for number in range(10):
            events_of.emit(CLAIM, "Normal", "Woken", f"time {number}", "Wake")
        await events_of.stop(grace_s=60)
        assert len(writer.stored) == 10
        assert events_of.dropped == 0
        assert asyncio.get_running_loop().time() == 10  # one at a time

    run(main())


def test_old_series_are_forgotten_so_that_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(events, "_REMEMBERED", 3)

    async def main() -> None:
        writer = Writer()
        events_of = recorder(writer)
        for number in (0, 1, 2, 3, 0):
            about = ObjectReference("v1", "Pod", "default", f"pod-{number}", f"uid-{number}")
            events_of.emit(about, "Normal", "Seen", "m", "See")
            await asyncio.sleep(1)
        assert writer.calls == ["create"] * 5

    run(main())


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        pytest.param("short", "short", id="short"),
        pytest.param("x" * 1024, "x" * 1024, id="just fits"),
        pytest.param("x" * 1025, "x" * 1021 + "…", id="one byte too long"),
        pytest.param("ü" * 600, "ü" * 510 + "…", id="two bytes a character"),
        pytest.param("😀" * 300, "😀" * 255 + "…", id="four bytes a character"),
        pytest.param("lone \ud800", "lone ?", id="no character"),
    ],
)
def test_message_is_cut_between_characters_at_1024_bytes(message: str, expected: str):
    shown = events.cut(message)
    assert shown == expected
    assert len(shown.encode()) <= 1024


def test_names_stay_unique_in_one_instant_and_within_what_a_name_may_be():
    async def main() -> None:
        writer = Writer()
        events_of = recorder(writer)
        about = ObjectReference("apps/v1", "Deployment", "default", "d" * 253, "uid")
        for number in range(5):
            events_of.emit(about, "Normal", "Seen", f"time {number}", "See")
        await asyncio.sleep(1)
        assert len(writer.stored) == 5
        assert max(map(len, writer.stored)) <= 253

    run(main())
