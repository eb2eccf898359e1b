"""Kinds whose definitions come later: they hold nothing up, are named once, and are taken up when they appear."""

import asyncio
import logging
from typing import ClassVar

import pytest

from aibrix_operator.cluster import errors
from aibrix_operator.cluster.patiently import RETRY_S
from aibrix_operator.cluster.resource import MODEL_CLAIMS, MODEL_WARMUPS, key_of
from aibrix_operator.cluster.watch import Change
from aibrix_operator.operator import own_kinds
from aibrix_operator.operator.own_kinds import OwnKinds
from aibrix_operator.operator.process import feeds_of
from aibrix_operator.sim import loop


class Server:
    """As much of a cluster as is listed here."""

    def __init__(self):
        self.objects = {MODEL_CLAIMS: [{"metadata": {"name": "a", "namespace": "n", "managedFields": []}}]}
        self.problems = []
        self.lists = []

    async def list_all(self, resource, namespace=None):
        self.lists.append(resource)
        if self.problems:
            raise self.problems.pop()
        if resource not in self.objects:
            raise errors.NotFound("the server could not find the requested resource", status=404)
        return self.objects[resource], "17"

    async def pages(self, resource, namespace=None, *, limit):
        await self.list_all(resource, namespace)
        yield None


class Feed:
    def __init__(self):
        self.told = []

    def listed(self, objects, version):
        self.told.append(([key_of(obj) for obj in objects], version))

    def changed(self, change, old, new):
        self.told.append((change, old, new))


def in_virtual_time(story):
    def test():
        loop.run(story())

    test.__name__ = story.__name__
    return test


class Watch:
    """In the place of ours: what it was made with, and whether it runs."""

    made: ClassVar[list["Watch"]] = []

    def __init__(self, cluster, resource, *, namespace, on_event, on_list):
        self.resource, self.on_event, self.on_list, self.runs = resource, on_event, on_list, False
        self.made.append(self)

    async def run(self):
        self.runs = True
        await asyncio.get_running_loop().create_future()


@pytest.fixture
def watches(monkeypatch):
    monkeypatch.setattr(own_kinds, "Watch", Watch)
    monkeypatch.setattr(Watch, "made", [])
    return Watch.made


def own(server, *resources):
    feeds = {resource: [Feed()] for resource in resources}
    return OwnKinds(server, None, feeds), feeds


def test_a_missing_kind_holds_nothing_up_and_is_listed_and_watched_when_it_appears(watches):
    async def story():
        server = Server()
        kinds, feeds = own(server, MODEL_CLAIMS, MODEL_WARMUPS)
        tasks = [asyncio.create_task(kinds.follow(resource)) for resource in feeds]
        await kinds.wait_until_listed()
        assert kinds.missing == ["modelwarmups"]
        assert feeds[MODEL_CLAIMS][0].told == [([("n", "a")], 17)]
        await asyncio.sleep(3 * own_kinds.MISSING_S)
        server.objects[MODEL_WARMUPS] = []
        await asyncio.sleep(own_kinds.MISSING_S + 1)
        assert kinds.missing == []
        told = feeds[MODEL_WARMUPS][0].told
        assert told == [([], 17)]
        (watch,) = watches
        assert (watch.resource, watch.runs) == (MODEL_WARMUPS, True)
        watch.on_event(Change.DELETED, {"a": 1}, None)
        watch.on_list([{"metadata": {"name": "b", "namespace": "n"}}], 18)
        assert told[1:] == [(Change.DELETED, {"a": 1}, None), ([("n", "b")], 18)]
        await asyncio.sleep(own_kinds.RESYNC_S)
        assert len(feeds[MODEL_CLAIMS][0].told) == 2  # kopf watches it, and it is listed now and then
        for task in tasks:
            task.cancel()

    loop.run(story())


def test_it_is_said_once(caplog):
    caplog.set_level(logging.INFO, "aibrix_operator")

    async def story():
        kinds, _ = own(Server(), MODEL_WARMUPS)
        for _ in range(3):
            await kinds.list_anew(MODEL_WARMUPS)

    loop.run(story())
    assert [record.getMessage() for record in caplog.records] == [
        "modelwarmups.model.aibrix.ai are not installed; going on without them"
    ]


@in_virtual_time
async def test_a_server_that_is_away_is_asked_until_it_answers():
    server = Server()
    server.problems = [errors.Unavailable("away"), errors.Denied("not yet")]
    kinds, feeds = own(server, MODEL_CLAIMS)
    await kinds.list_anew(MODEL_CLAIMS)
    assert len(server.lists) == 3
    assert len(feeds[MODEL_CLAIMS][0].told) == 1


@in_virtual_time
async def test_the_watch_of_a_kind_that_a_cluster_may_lack_waits_for_it():
    server, began = Server(), asyncio.Event()

    class Waiting:
        resource = MODEL_WARMUPS

        async def run(self):
            began.set()
            await asyncio.get_running_loop().create_future()

    kinds, _ = own(server)
    task = asyncio.create_task(kinds.run_once_installed(Waiting()))
    await asyncio.sleep(5 * own_kinds.MISSING_S)
    assert not began.is_set()
    server.problems = [errors.Unavailable("away")]
    server.objects[MODEL_WARMUPS] = []
    await asyncio.sleep(own_kinds.MISSING_S + RETRY_S + 1)
    assert began.is_set()
    task.cancel()


def test_controllers_that_share_a_feed_are_told_once():
    class Controller:
        def __init__(self, *feeds):
            self.own = dict(feeds)

    shared, other = Feed(), Feed()
    controllers = [
        Controller((MODEL_CLAIMS, shared)),
        Controller((MODEL_CLAIMS, shared), (MODEL_WARMUPS, other)),
        Controller((MODEL_WARMUPS, Feed())),
    ]
    feeds = feeds_of(controllers)
    assert feeds[MODEL_CLAIMS] == [shared]
    assert feeds[MODEL_WARMUPS] == [other, controllers[2].own[MODEL_WARMUPS]]


@pytest.mark.parametrize("problem", [errors.Unavailable("away"), ZeroDivisionError()])
def test_what_is_no_answer_of_the_server_is_raised_or_waited_for(problem):
    """A fault of ours is not taken for a server that is away."""
    server = Server()
    server.problems = [problem]
    kinds, feeds = own(server, MODEL_CLAIMS)
    if isinstance(problem, errors.ClusterError):
        loop.run(kinds.list_anew(MODEL_CLAIMS))
        assert feeds[MODEL_CLAIMS][0].told
    else:
        with pytest.raises(ZeroDivisionError):
            loop.run(kinds.list_anew(MODEL_CLAIMS))
