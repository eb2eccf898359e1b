"""Our acknowledged writes are read back at once, and only until the watch knows better."""

from __future__ import annotations

from typing import Any

import pytest

from aibrix_operator.cluster.overlay import Overlay
from aibrix_operator.cluster.resource import Key, Object, key_of
from aibrix_operator.cluster.watch import Change

A = ("default", "a")


def claim(version: str, phase: str = "", *, uid: str = "u1", name: str = "a", **metadata: Any) -> Object:
    return {
        "metadata": {"namespace": "default", "name": name, "uid": uid, "resourceVersion": version, **metadata},
        "status": {"phase": phase},
    }


class Watched:
    """What a watch does to its cache and tells its listeners, without a server."""

    def __init__(self) -> None:
        self.objects: dict[Key, Object] = {}
        self.overlay = Overlay(self.objects)

    def shows(self, obj: Object) -> None:
        old = self.objects.get(key_of(obj))
        self.objects[key_of(obj)] = obj
        self.overlay.observed(Change.MODIFIED if old else Change.ADDED, old, obj)

    def drops(self, key: Key = A) -> None:
        self.overlay.observed(Change.DELETED, self.objects.pop(key), None)


@pytest.fixture
def watched() -> Watched:
    return Watched()


def phase(watched: Watched, key: Key = A) -> str | None:
    obj = watched.overlay.get(key)
    return None if obj is None else obj["status"]["phase"]


def test_write_is_seen_before_the_watch_brings_it(watched: Watched):
    watched.shows(claim("9", "Pending"))
    watched.overlay.wrote(claim("10", "Active"))
    assert phase(watched) == "Active"
    assert watched.overlay.pending == 1


@pytest.mark.parametrize("version", ["10", "11"])
def test_write_is_forgotten_once_the_watch_shows_it_or_a_later_one(watched: Watched, version: str):
    watched.shows(claim("9", "Pending"))
    watched.overlay.wrote(claim("10", "Active"))
    watched.shows(claim(version, "watched"))
    assert phase(watched) == "watched"
    assert watched.overlay.pending == 0


def test_older_event_that_arrives_late_does_not_hide_the_write(watched: Watched):
    watched.shows(claim("8", "Pending"))
    watched.overlay.wrote(claim("10", "Active"))
    watched.shows(claim("9", "somebody else's"))
    assert phase(watched) == "Active"


def test_versions_are_compared_as_numbers(watched: Watched):
    watched.shows(claim("99", "Pending"))
    watched.overlay.wrote(claim("100", "Active"))
    assert phase(watched) == "Active"


def test_answer_that_is_slower_than_the_watch_changes_nothing(watched: Watched):
    watched.shows(claim("11", "later"))
    watched.overlay.wrote(claim("10", "Active"))
    assert phase(watched) == "later"
    assert watched.overlay.pending == 0


def test_of_two_writes_the_later_version_stands_whatever_order_they_are_told_in(watched: Watched):
    watched.shows(claim("9"))
    watched.overlay.wrote(claim("11", "second"))
    watched.overlay.wrote(claim("10", "first"))
    assert phase(watched) == "second"


def test_object_that_we_created_is_there_before_the_watch_has_it(watched: Watched):
    watched.overlay.wrote(claim("10", "new"))
    assert phase(watched) == "new"
    assert watched.overlay.keys() == [A]
    assert [key_of(obj) for obj in watched.overlay.values()] == [A]


def test_deletion_takes_the_write_along(watched: Watched):
    watched.shows(claim("9"))
    watched.overlay.wrote(claim("10", "Active"))
    watched.drops()
    assert watched.overlay.get(A) is None
    assert list(watched.overlay.values()) == []
    assert watched.overlay.pending == 0


def test_answer_told_after_the_deletion_does_not_bring_the_object_back(watched: Watched):
    watched.shows(claim("9"))
    watched.drops()
    watched.overlay.wrote(claim("10", "Active"))
    assert watched.overlay.get(A) is None


def test_deletion_of_the_old_object_leaves_our_write_to_its_successor(watched: Watched):
    watched.shows(claim("9", uid="u1"))
    watched.overlay.wrote(claim("12", "successor", uid="u2"))
    watched.drops()
    assert phase(watched) == "successor"


def test_taking_the_last_finalizer_off_hides_what_the_watch_still_shows(watched: Watched):
    deleted = {"deletionTimestamp": "2026-11-30T00:00:00Z", "deletionGracePeriodSeconds": 0}
    watched.shows(claim("9", finalizers=["f"], **deleted))
    watched.overlay.wrote(claim("10", finalizers=[], **deleted))
    assert watched.overlay.get(A) is None
    watched.shows(claim("9", finalizers=["f"], **deleted))  # a list read before the end
    assert watched.overlay.get(A) is None
    watched.drops()
    assert watched.overlay.get(A) is None


def test_deleted_object_that_somebody_else_still_holds_stays(watched: Watched):
    deleted = {"deletionTimestamp": "2026-11-30T00:00:00Z", "deletionGracePeriodSeconds": 0}
    watched.shows(claim("9", finalizers=["f", "g"], **deleted))
    watched.overlay.wrote(claim("10", "held", finalizers=["g"], **deleted))
    assert phase(watched) == "held"


def test_object_that_left_the_watched_labels_is_seen_again_when_it_is_back(watched: Watched):
    watched.shows(claim("9"))
    watched.drops()
    watched.shows(claim("12", "back"))
    assert phase(watched) == "back"
    watched.overlay.wrote(claim("13", "written"))
    assert phase(watched) == "written"


def test_slim_is_applied_to_answers_too(watched: Watched):
    watched.overlay.wrote(claim("10", managedFields=[{"big": 1}]))
    obj = watched.overlay.get(A)
    assert obj is not None
    assert "managedFields" not in obj["metadata"]


def test_versions_that_are_no_numbers_stand_until_the_watch_moves(watched: Watched):
    watched.shows(claim("alpha", "Pending"))
    watched.overlay.wrote(claim("beta", "Active"))
    assert phase(watched) == "Active"
    watched.shows(claim("gamma", "later"))
    assert phase(watched) == "later"
    assert watched.overlay.pending == 0


def test_our_own_write_is_known_until_the_watch_shows_it(watched: Watched):
    watched.shows(claim("9"))
    watched.overlay.wrote(claim("10"))
    assert watched.overlay.has_written(claim("10"))
    assert not watched.overlay.has_written(claim("11"))
    watched.shows(claim("10"))
    assert not watched.overlay.has_written(claim("10"))
