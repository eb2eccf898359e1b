"""One cache of a process: news in any order, lists, our own writes over it, and whose an object is."""

import pytest

from aibrix_operator.cluster.resource import JOBS, PODS, key_of
from aibrix_operator.cluster.watch import Change
from aibrix_operator.controller.cache import Cache, Caches, Selection
from aibrix_operator.controller.status import difference

KEY = ("default", "a")


def obj(version, name="a", uid="u1", owner="", **metadata):
    owners = [{"kind": "Job", "name": "j", "uid": owner, "controller": True}] if owner else []
    whole = {"name": name, "namespace": "default", "uid": uid, "resourceVersion": str(version)}
    return {"metadata": {**whole, "ownerReferences": owners, **metadata}}


@pytest.fixture
def told():
    return []


@pytest.fixture
def cache(told):
    made = Cache(Selection(PODS))

    def listen(change, old, new):
        told.append((change, *(o and (o["metadata"]["uid"], o["metadata"]["resourceVersion"]) for o in (old, new))))

    made.listen(listen)
    return made


def test_the_first_word_of_an_object_is_an_addition_and_older_or_equal_news_are_none(cache, told):
    for version in (5, 5, 4, 6):
        cache.changed(Change.MODIFIED, None, obj(version))
    assert told == [(Change.ADDED, None, ("u1", "5")), (Change.MODIFIED, ("u1", "5"), ("u1", "6"))]


def test_a_namesake_ends_the_former_and_late_news_of_the_former_change_nothing(cache, told):
    cache.changed(Change.ADDED, None, obj(5))
    cache.changed(Change.ADDED, None, obj(8, uid="u2"))
    cache.changed(Change.MODIFIED, None, obj(6))
    cache.changed(Change.DELETED, obj(7), None)
    assert cache.get(KEY)["metadata"]["uid"] == "u2"
    assert told[1:3] == [(Change.DELETED, ("u1", "5"), None), (Change.ADDED, None, ("u2", "8"))]


def test_what_a_list_lacks_is_gone_unless_it_is_younger_or_elsewhere(cache):
    for name, uid, version in (("a", "u1", 5), ("b", "u2", 6), ("c", "u3", 30)):
        cache.changed(Change.ADDED, None, obj(version, name, uid))
    cache.changed(Change.ADDED, None, obj(7, "d", "u4", namespace="other"))
    cache.listed([obj(5)], 20, "default")
    assert {key_of(o)[1] for o in cache.values()} == {"a", "c", "d"}
    cache.listed([obj(5)], 40)
    assert {key_of(o)[1] for o in cache.values()} == {"a"}


def test_what_we_created_is_there_at_once_and_goes_with_a_list_that_lacks_it(cache, told):
    cache.wrote(obj(9, owner="j1"))
    assert [o["metadata"]["name"] for o in cache.owned_by("j1")] == ["a"]
    cache.listed([], 8)  # read before it was made
    assert cache.get(KEY) is not None
    cache.listed([], 10)
    assert (cache.get(KEY), cache.owned_by("j1")) == (None, ())
    assert told == [(Change.DELETED, ("u1", "9"), None)]


def test_what_we_deleted_is_gone_at_once_or_on_its_way(cache):
    cache.changed(Change.ADDED, None, obj(5, owner="j1"))
    cache.changed(Change.ADDED, None, obj(6, "b", "u2", owner="j1"))
    cache.asked_to_delete(KEY, "u1", {"kind": "Status", "metadata": {}})
    held = obj(7, "b", "u2", owner="j1", deletionTimestamp="2026-01-01T00:00:00Z", finalizers=["held"])
    cache.asked_to_delete(("default", "b"), "u2", held)
    (left,) = cache.owned_by("j1")
    assert (left["metadata"]["name"], "deletionTimestamp" in left["metadata"]) == ("b", True)
    cache.changed(Change.MODIFIED, None, obj(5, owner="j1"))  # an echo from before
    assert cache.get(KEY) is None


def test_the_name_of_another_is_not_taken_for_what_is_gone(cache):
    cache.changed(Change.ADDED, None, obj(8, uid="u2"))
    cache.gone(KEY, "u1")
    assert cache.get(KEY)["metadata"]["uid"] == "u2"


def test_an_object_that_changes_hands_is_its_new_owners(cache):
    cache.changed(Change.ADDED, None, obj(5, owner="j1"))
    cache.changed(Change.MODIFIED, None, obj(6, owner="j2"))
    assert (cache.owned_by("j1"), len(cache.owned_by("j2"))) == ((), 1)
    assert list(cache._owned) == ["j2"]
    cache.changed(Change.DELETED, obj(6, owner="j2"), None)
    assert cache.owned_by("j2") == ()
    assert not cache._owned


def test_a_listener_that_fails_keeps_no_other_from_hearing(cache, told, caplog):
    def fail(change, old, new):
        raise ZeroDivisionError

    cache._listeners.insert(0, fail)
    cache.changed(Change.ADDED, None, obj(5))
    assert len(told) == 1
    assert "a listener failed" in caplog.text


def test_news_of_nothing_are_none(cache, told):
    cache.changed(Change.DELETED, None, None)
    assert told == []


def test_one_cache_serves_all_who_select_the_same_and_an_own_kind_has_one():
    caches = Caches()
    own = caches.own(JOBS)
    assert caches.of(Selection(JOBS, "app")) is own
    labelled = caches.of(Selection(PODS, "app"))
    assert caches.of(Selection(PODS, "app")) is labelled is not caches.of(Selection(PODS))
    assert len(caches.watched) == 2
    assert caches.all[0] is own


@pytest.mark.parametrize(
    ("old", "new", "patch"),
    [
        pytest.param({"a": 1}, {"a": 1}, {}, id="equal"),
        pytest.param({"a": 1, "b": 2}, {"a": 1}, {"b": None}, id="one that goes"),
        pytest.param({}, {"a": {"b": []}}, {"a": {"b": []}}, id="one that comes"),
        pytest.param({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "d": 3}}, {"a": {"c": None, "d": 3}}, id="within"),
        pytest.param({"a": [1, 2]}, {"a": [2]}, {"a": [2]}, id="a list as a whole"),
        pytest.param({"a": {"b": 1}}, {"a": 1}, {"a": 1}, id="another kind of value"),
    ],
)
def test_a_status_is_written_as_what_differs(old, new, patch):
    assert difference(old, new) == patch
