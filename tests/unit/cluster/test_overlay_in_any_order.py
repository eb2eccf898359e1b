"""Whatever order a server's events and the answers to our writes arrive in, no acknowledged write is ever forgotten."""

from __future__ import annotations

from collections import deque

from hypothesis import given, settings
from hypothesis import strategies as st

from aibrix_operator.cluster.overlay import Overlay
from aibrix_operator.cluster.resource import Key, Object
from aibrix_operator.cluster.watch import Change

A = ("default", "a")
STEPS = [
    *("create", "others write", "we write", "we write", "delete"),
    *("watch delivers", "watch delivers", "watch lists anew", "answer arrives"),
]


class World:
    """One object's server, the way from it to the watch, and the way back of our answers; both may lag."""

    def __init__(self) -> None:
        self.version = 0
        self.uids = 0
        self.stored: Object | None = None
        self.on_the_way: deque[tuple[Change, Object]] = deque()
        self.answers: deque[Object] = deque()
        self.watched: dict[Key, Object] = {}
        self.overlay = Overlay(self.watched)
        self.gone: set[str] = set()  # uids whose deletion the watch has told
        self.newest_answer = 0

    def step(self, step: str) -> None:
        if step == "create" and self.stored is None:
            self.uids += 1
            self._store(Change.ADDED)
        elif step == "others write" and self.stored is not None:
            self._store(Change.MODIFIED)
        elif step == "we write" and self.stored is not None and self._is_known():
            self._store(Change.MODIFIED)
            self.answers.append(self._stored())
        elif step == "delete" and self.stored is not None:
            self.version += 1
            self.on_the_way.append((Change.DELETED, self._stored()))
            self.stored = None
        elif step == "watch delivers" and self.on_the_way:
            self._deliver(*self.on_the_way.popleft())
        elif step == "watch lists anew":
            self._list()
        elif step == "answer arrives" and self.answers:
            answer = self.answers.popleft()
            if answer["metadata"]["uid"] not in self.gone:
                self.newest_answer = max(self.newest_answer, int(answer["metadata"]["resourceVersion"]))
            self.overlay.wrote(answer)

    def _is_known(self) -> bool:
        """The controller acts on what it has seen."""
        seen = self.watched.get(A)
        return (
            seen is not None and self.stored is not None and seen["metadata"]["uid"] == self.stored["metadata"]["uid"]
        )

    def _store(self, change: Change) -> None:
        self.version += 1
        metadata = {"namespace": "default", "name": "a", "uid": f"u{self.uids}", "resourceVersion": str(self.version)}
        self.stored = {"metadata": metadata}
        self.on_the_way.append((change, self._stored()))

    def _stored(self) -> Object:
        assert self.stored is not None
        return {"metadata": dict(self.stored["metadata"])}

    def _deliver(self, change: Change, obj: Object) -> None:
        old = self.watched.get(A)
        if old is not None and (change is Change.DELETED or old["metadata"]["uid"] != obj["metadata"]["uid"]):
            del self.watched[A]
            self.gone.add(old["metadata"]["uid"])
            self.overlay.observed(Change.DELETED, old, None)
            old = None
        if change is not Change.DELETED:
            self.watched[A] = obj
            self.overlay.observed(Change.ADDED if old is None else Change.MODIFIED, old, obj)

    def _list(self) -> None:
        self.on_the_way.clear()
        if self.stored is not None:
            self._deliver(Change.MODIFIED, self._stored())
        elif A in self.watched:
            self._deliver(Change.DELETED, self.watched[A])


def shown_version(world: World) -> int | None:
    obj = world.overlay.get(A)
    return None if obj is None else int(obj["metadata"]["resourceVersion"])


@settings(max_examples=400, deadline=None)
@given(st.lists(st.sampled_from(STEPS), max_size=40))
def test_no_acknowledged_write_is_forgotten_and_no_deleted_object_comes_back(steps):
    world = World()
    last_shown = 0
    for step in ["create", *steps]:
        world.step(step)
        obj, version = world.overlay.get(A), shown_version(world)
        if version is not None:
            assert version >= last_shown, "went back to an older version"
            assert version >= world.newest_answer, "forgot our own write"
            assert obj is not None
            assert obj["metadata"]["uid"] not in world.gone, "brought a deleted object back"
            last_shown = version
        else:
            # Nothing to show: nothing was acknowledged, or the watch told that its object is gone.
            assert world.newest_answer == 0 or world.gone
    _settle(world)
    assert world.overlay.pending == 0
    assert world.overlay.get(A) == world.stored


def _settle(world: World) -> None:
    while world.on_the_way:
        world.step("watch delivers")
    while world.answers:
        world.step("answer arrives")
