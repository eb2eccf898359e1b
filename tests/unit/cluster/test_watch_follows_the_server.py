"""The cache shows what the server has, whatever happens to lists, watches and lines."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable

import pytest
from cluster_fake_api_server import Answer, FakeApiServer, status

from aibrix_operator.cluster import client, errors
from aibrix_operator.cluster.backoff import Backoff
from aibrix_operator.cluster.client import Cluster
from aibrix_operator.cluster.resource import MODEL_CLAIMS, Object
from aibrix_operator.cluster.watch import LAST_APPLIED, Change, Watch

AT_ONCE = Backoff(initial_s=0.001, max_s=0.01)


class Seen:
    """A listener that keeps (change, name of the object) and lets a test wait for a state."""

    def __init__(self) -> None:
        self.changes: list[tuple[Change, str]] = []
        self._something = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()

    def __call__(self, change: Change, old: Object | None, new: Object | None) -> None:
        obj = new or old
        assert obj is not None
        self.changes.append((change, obj["metadata"]["name"]))
        task = asyncio.get_running_loop().create_task(self._notify())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _notify(self) -> None:
        async with self._something:
            self._something.notify_all()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(5), self._something:
            await self._something.wait_for(condition)


@contextlib.asynccontextmanager
async def following(cluster: Cluster, seen: Seen, **options) -> AsyncIterator[Watch]:
    watch = Watch(cluster, MODEL_CLAIMS, on_event=seen, backoff=AT_ONCE, **options)
    task = asyncio.create_task(watch.run())
    try:
        async with asyncio.timeout(5):
            await watch.synced.wait()
        yield watch
        assert not task.done(), "a watch never ends by itself"
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def names(watch: Watch) -> set[str]:
    return {name for _, name in watch.objects}


@pytest.fixture
def seen() -> Seen:
    return Seen()


async def test_first_list_in_pages_fills_the_cache_and_tells_of_each_object(api: FakeApiServer, cluster, seen):
    for number in range(5):
        api.put(f"c{number}")
    async with following(cluster, seen, page_objects=2) as watch:
        assert names(watch) == {"c0", "c1", "c2", "c3", "c4"}
        assert seen.changes == [(Change.ADDED, f"c{number}") for number in range(5)]
        assert api.count("LIST") == 3
        assert watch.list_age_s() is not None


async def test_changes_arrive_in_their_order(api: FakeApiServer, cluster, seen):
    api.put("a")
    async with following(cluster, seen) as watch:
        await api.watched()
        api.put("b")
        api.put("a", spec={"x": 1})
        api.remove("b")
        await seen.until(lambda: len(seen.changes) == 4)
        assert seen.changes == [
            (Change.ADDED, "a"),
            (Change.ADDED, "b"),
            (Change.MODIFIED, "a"),
            (Change.DELETED, "b"),
        ]
        assert names(watch) == {"a"}
        assert watch.objects[("default", "a")]["spec"] == {"x": 1}


async def test_only_the_asked_namespace_and_labels_are_requested(api: FakeApiServer, cluster, seen):
    async with following(cluster, seen, namespace="blue", label_selector="pool=a,enabled"):
        await api.watched()
    assert [(path, query.get("labelSelector")) for _, path, query in api.requests] == [
        ("/apis/model.aibrix.ai/v1alpha1/namespaces/blue/modelclaims", "pool=a,enabled"),
    ] * 2


async def test_bookkeeping_is_dropped_before_it_is_kept(api: FakeApiServer, cluster, seen):
    api.put("a", metadata={"managedFields": [{"big": 1}], "annotations": {LAST_APPLIED: "{}", "mine": "1"}})
    async with following(cluster, seen) as watch:
        metadata = watch.objects[("default", "a")]["metadata"]
        assert "managedFields" not in metadata
        assert metadata["annotations"] == {"mine": "1"}


async def test_cut_stream_goes_on_from_the_last_version_without_a_list(api: FakeApiServer, cluster, seen):
    async with following(cluster, seen) as watch:
        await api.watched()
        api.put("a")
        await seen.until(lambda: names(watch) == {"a"})
        api.end_watches()
        await api.watched(0)
        api.put("b")
        await seen.until(lambda: names(watch) == {"a", "b"})
        assert api.count("LIST") == 1
        assert api.requests[-1][2]["resourceVersion"] == "101"


async def test_line_cut_in_the_middle_is_read_again_whole(api: FakeApiServer, cluster, seen):
    async with following(cluster, seen) as watch:
        await api.watched()
        api.say(b'{"type":"ADDED","object":{"metadata":{"na')
        api.end_watches()
        api.put("a")
        await seen.until(lambda: names(watch) == {"a"})
        assert api.count("LIST") == 1


async def test_bookmark_moves_the_version_on(api: FakeApiServer, cluster, seen):
    async with following(cluster, seen) as watch:
        await api.watched()
        api.version = 500
        api.bookmark()
        api.end_watches()
        await api.watched(0)
        await api.watched()
        assert api.requests[-1][2]["resourceVersion"] == "500"
        assert watch.lists == 1


@pytest.mark.parametrize("way", ["event", "status"])
async def test_expired_version_lists_again_and_notices_deletions(api: FakeApiServer, cluster, seen, way):
    for name in ("stays", "changes", "goes"):
        api.put(name)
    async with following(cluster, seen) as watch:
        await api.watched()
        seen.changes.clear()
        # All of this happens while no watch is open, and its history is lost.
        api.next_answer("WATCH", *[status(503, "ServiceUnavailable")] * 3)
        api.end_watches()
        await api.watched(0)
        api.remove("goes")
        api.put("changes", spec={"x": 1})
        api.put("comes")
        if way == "status":
            api.next_answer("WATCH", status(410, "Expired"))
        api.forget_history()
        await seen.until(lambda: names(watch) == {"stays", "changes", "comes"})
        assert sorted(seen.changes) == [
            (Change.ADDED, "comes"),
            (Change.DELETED, "goes"),
            (Change.MODIFIED, "changes"),
        ]
        assert watch.lists == 2


async def test_object_recreated_unseen_is_a_deletion_and_an_addition(api: FakeApiServer, cluster, seen):
    api.put("a")
    async with following(cluster, seen):
        await api.watched()
        seen.changes.clear()
        api.next_answer("WATCH", status(410, "Expired"))
        api.end_watches()
        await api.watched(0)
        api.remove("a")
        api.put("a")
        await seen.until(lambda: len(seen.changes) == 2)
        assert seen.changes == [(Change.DELETED, "a"), (Change.ADDED, "a")]


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b"this is no json\n", id="no JSON"),
        pytest.param(b'"a string"\n', id="no object"),
        pytest.param(b'{"type":"ADDED"}\n', id="no object inside"),
        pytest.param(b'{"type":"MOVED","object":{"metadata":{"name":"x","resourceVersion":"1"}}}\n', id="unknown type"),
        pytest.param(b'{"type":"ADDED","object":{"metadata":{"resourceVersion":"1"}}}\n', id="no name"),
        pytest.param(b'{"type":"ADDED","object":{"metadata":{"name":"x","resourceVersion":"1"}}}\n', id="no uid"),
        pytest.param(b'{"type":"ERROR","object":{"kind":"Status","code":500,"message":"etcd"}}\n', id="server error"),
        pytest.param(b'{"type":"ERROR","object":"boom"}\n', id="malformed error"),
    ],
)
async def test_line_that_is_no_event_leads_to_a_new_list(api: FakeApiServer, cluster, seen, line):
    api.put("a")
    async with following(cluster, seen) as watch:
        await api.watched()
        api.say(line)
        await api.watched(0)
        await api.watched()
        api.put("b")
        await seen.until(lambda: names(watch) == {"a", "b"})
        assert watch.lists == 2


async def test_list_with_a_broken_item_is_tried_again(api: FakeApiServer, cluster, seen):
    api.put("a")
    api.next_answer("LIST", Answer(200, {"metadata": {"resourceVersion": "1"}, "items": [{"metadata": {}}]}))
    async with following(cluster, seen) as watch:
        assert names(watch) == {"a"}


async def test_pages_that_expire_are_followed_by_one_whole_list(api: FakeApiServer, cluster, seen):
    for number in range(5):
        api.put(f"c{number}")
    first = {"metadata": {"resourceVersion": "1", "continue": "2"}, "items": []}
    api.next_answer("LIST", Answer(200, first), status(410, "Expired"))
    async with following(cluster, seen, page_objects=2) as watch:
        assert len(names(watch)) == 5
        assert [query.get("limit") for verb, _, query in api.requests if verb == "LIST"] == ["2", "2", None]


async def test_server_that_is_away_is_tried_until_it_is_back(api: FakeApiServer, cluster, seen, caplog):
    api.put("a")
    api.next_answer("LIST", status(503, "ServiceUnavailable"), status(429, "TooManyRequests"), Answer(200, b"<html>"))
    with caplog.at_level(logging.WARNING):
        async with following(cluster, seen) as watch:
            assert names(watch) == {"a"}
    assert len(caplog.records) == 3


async def test_failing_listener_neither_stops_the_cache_nor_hides_its_error(api: FakeApiServer, cluster, seen, caplog):
    def listener(change: Change, old: Object | None, new: Object | None) -> None:
        seen(change, old, new)
        if change is Change.MODIFIED:
            raise RuntimeError("bug")

    api.put("a")
    watch = Watch(cluster, MODEL_CLAIMS, on_event=listener, backoff=AT_ONCE)
    task = asyncio.create_task(watch.run())
    await watch.synced.wait()
    api.put("a", spec={"x": 1})
    api.put("b")
    await seen.until(lambda: names(watch) == {"a", "b"})
    assert watch.objects[("default", "a")]["spec"] == {"x": 1}
    assert "RuntimeError: bug" in caplog.text
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_streams_that_end_at_once_and_say_nothing_are_not_a_busy_loop(api: FakeApiServer, cluster, seen):
    api.next_answer("WATCH", Answer(200, b""), Answer(200, b""))
    began = asyncio.get_running_loop().time()
    watch = Watch(cluster, MODEL_CLAIMS, on_event=seen, backoff=Backoff(initial_s=0.05, max_s=10))
    task = asyncio.create_task(watch.run())
    await api.watched()
    assert asyncio.get_running_loop().time() - began >= 0.05 + 0.1
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_silent_connection_is_given_up_and_the_watch_goes_on_without_a_list(
    api: FakeApiServer, cluster, seen, monkeypatch
):
    monkeypatch.setattr(client, "_WATCH_SILENCE_S", 0.1)
    async with following(cluster, seen) as watch:
        await api.watched()
        async with asyncio.timeout(5):
            while api.count("WATCH") < 2:  # noqa: ASYNC110  # the deadline is real time's, on a real connection
                await asyncio.sleep(0.01)
        api.put("a")
        await seen.until(lambda: names(watch) == {"a"})
        assert watch.lists == 1


async def test_object_of_a_megabyte_arrives_whole(api: FakeApiServer, cluster, seen):
    async with following(cluster, seen) as watch:
        await api.watched()
        api.put("a", spec={"text": "x" * 1_000_000})
        api.put("b")
        await seen.until(lambda: names(watch) == {"a", "b"})
        assert len(watch.objects[("default", "a")]["spec"]["text"]) == 1_000_000


async def test_what_keeps_does_not_want_is_as_good_as_not_there(api, cluster, seen):
    api.put("wanted", spec={"x": 1})
    api.put("other")
    async with following(cluster, seen, keeps=lambda obj: "spec" in obj) as watch:
        assert names(watch) == {"wanted"}
        api.put("other", spec={"x": 1})
        await seen.until(lambda: (Change.ADDED, "other") in seen.changes)
        del api.objects["default", "wanted"]["spec"]
        api.put("wanted")
        await seen.until(lambda: (Change.DELETED, "wanted") in seen.changes)
        api.remove("wanted")
        api.put("last", spec={"x": 1})
        await seen.until(lambda: (Change.ADDED, "last") in seen.changes)
        assert names(watch) == {"other", "last"}
        assert seen.changes.count((Change.DELETED, "wanted")) == 1


async def test_every_list_but_the_first_waits_as_long_as_it_is_told(api, cluster, seen):
    asked = []

    def delay_s() -> float:
        asked.append(seen.changes.copy())
        return 0.0

    async with following(cluster, seen, relist_delay_s=delay_s) as watch:
        assert asked == []
        await api.watched()
        api.forget_history()
        api.end_watches()
        api.put("new")
        api.forget_history()
        await seen.until(lambda: (Change.ADDED, "new") in seen.changes)
        assert watch.lists == 2
        assert asked == [[]], "once, and before the list"


async def test_a_server_that_was_away_for_long_is_listed_as_soon_as_one_that_never_was(api, cluster, seen):
    failures: list[int] = []

    class Noted(Backoff):
        def delay_s(self, number: int) -> float:
            failures.append(number)
            return 0.0

    watch = Watch(cluster, MODEL_CLAIMS, on_event=seen, backoff=Noted(initial_s=1.0, max_s=1.0))
    task = asyncio.create_task(watch.run())
    async with asyncio.timeout(5):
        await watch.synced.wait()
        await api.watched()
        api.next_answer("WATCH", *[status(503, "ServiceUnavailable")] * 6, status(410, "Expired"))
        api.end_watches()
        api.put("new")
        await seen.until(lambda: watch.lists == 2)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert failures[-1] == 1, failures
    assert max(failures) >= 6


# --- lists beside the watch


@contextlib.asynccontextmanager
async def deaf(api: FakeApiServer, watch: Watch) -> AsyncIterator[None]:
    """No line comes through for a while; then all of them do."""
    await api.watched()
    (lines,) = api._watchers
    late = asyncio.Queue()
    api._watchers[0] = late
    try:
        yield
    finally:
        api._watchers[0] = lines
        while not late.empty():
            lines.put_nowait(late.get_nowait())


async def test_a_list_beside_a_silent_watch_brings_the_cache_up_to_date_and_late_lines_change_nothing(
    api: FakeApiServer, cluster, seen
):
    for name in ("goes", "changes"):
        api.put(name)
    async with following(cluster, seen) as watch:
        async with deaf(api, watch):
            api.put("changes", spec={"x": 1})
            api.put("passes")
            api.remove("goes")
            api.remove("passes")
            api.put("comes")
            assert names(watch) == {"goes", "changes"}
            await watch.list_anew()
            assert names(watch) == {"changes", "comes"}
            told = [*seen.changes]
        api.put("last")
        await seen.until(lambda: "last" in names(watch))
        assert seen.changes == [*told, (Change.ADDED, "last")]
        assert watch.objects["default", "changes"]["spec"] == {"x": 1}
        assert (api.count("LIST"), api.count("WATCH")) == (2, 1)


async def test_a_list_that_the_watch_has_overtaken_changes_nothing(api: FakeApiServer, cluster, seen):
    api.put("a")
    old = Answer(200, {"metadata": {"resourceVersion": str(api.version)}, "items": [dict(api.objects["default", "a"])]})
    async with following(cluster, seen) as watch:
        await api.watched()
        api.remove("a")
        api.put("b")
        await seen.until(lambda: names(watch) == {"b"})
        api.next_answer("LIST", old)
        await watch.list_anew()
        assert names(watch) == {"b"}


async def test_a_list_that_cannot_be_had_leaves_the_cache_and_the_watch_alone(api: FakeApiServer, cluster, seen):
    api.put("a")
    async with following(cluster, seen) as watch:
        await api.watched()
        for answer in (
            status(503, "ServiceUnavailable"),
            Answer(200, {"metadata": {"resourceVersion": "9"}, "items": [{"metadata": {}}]}),
        ):
            api.next_answer("LIST", answer)
            with pytest.raises(errors.Unavailable):
                await watch.list_anew()
        assert names(watch) == {"a"}
        api.put("b")
        await seen.until(lambda: names(watch) == {"a", "b"})


async def test_versions_that_are_no_numbers_are_taken_as_they_come(api: FakeApiServer, cluster, seen):
    api.put("a")
    async with following(cluster, seen) as watch:
        await api.watched()
        item = {"metadata": {"name": "z", "namespace": "default", "uid": "u", "resourceVersion": "x-1"}}
        api.next_answer("LIST", Answer(200, {"metadata": {"resourceVersion": "x-2"}, "items": [item]}))
        await watch.list_anew()
        assert names(watch) == {"z"}
        api.put("b")
        await seen.until(lambda: names(watch) == {"z", "b"})
