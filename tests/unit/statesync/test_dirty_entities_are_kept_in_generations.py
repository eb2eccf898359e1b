"""What is dirty: nothing is lost when a push fails or something changes during it, and nothing stays dirty for ever."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from aibrix_operator.statesync.dirty import DirtySet

ENTITIES = st.sampled_from("abcdef")


def drained(dirty: DirtySet[str]) -> tuple[frozenset[str], frozenset[str]]:
    generation = dirty.drain()
    dirty.settle(generation.number)
    return generation.updated, generation.deleted


def test_what_gets_dirty_during_a_push_belongs_to_the_next_generation():
    dirty: DirtySet[str] = DirtySet()
    dirty.mark(["a"])
    generation = dirty.drain()
    dirty.mark(["a", "b"])
    dirty.settle(generation.number)
    assert drained(dirty) == ({"a", "b"}, set())


def test_what_failed_is_dirty_again_and_the_rest_is_not():
    dirty: DirtySet[str] = DirtySet()
    dirty.mark(["a", "b"])
    dirty.mark_deleted(["c", "d"])
    dirty.settle(dirty.drain().number, failed=["b", "d"])
    assert drained(dirty) == ({"b"}, {"d"})


def test_a_failed_push_does_not_undo_what_was_marked_meanwhile():
    dirty: DirtySet[str] = DirtySet()
    dirty.mark(["a"])
    dirty.mark_deleted(["b"])
    generation = dirty.drain()
    dirty.mark_deleted(["a"])
    dirty.mark(["b"])
    dirty.settle(generation.number, failed=["a", "b"])
    assert drained(dirty) == ({"b"}, {"a"})


def test_an_entity_under_way_still_counts_as_dirty():
    dirty: DirtySet[str] = DirtySet()
    dirty.mark(["a", "b"])
    generation = dirty.drain()
    assert len(dirty) == 2
    dirty.settle(generation.number)
    assert len(dirty) == 0


def test_news_wake_once_until_they_are_taken_and_stay_dirty():
    dirty: DirtySet[str] = DirtySet()
    wakes: list[None] = []
    dirty.announce_to(lambda: wakes.append(None))
    dirty.mark(["a"])
    dirty.mark(["b", "c"])
    assert len(wakes) == 1
    first, _ = dirty.take_untold(2)
    rest, _ = dirty.take_untold(2)
    assert first | rest == {"a", "b", "c"}
    assert dirty.take_untold(2) == (set(), set())
    dirty.mark(["a"])
    assert len(wakes) == 2
    assert drained(dirty)[0] == {"a", "b", "c"}


def test_a_deletion_is_told_as_one_also_while_its_push_is_under_way():
    dirty: DirtySet[str] = DirtySet()
    dirty.announce_to(lambda: None)
    dirty.mark(["a", "b"])
    dirty.mark_deleted(["a"])
    dirty.drain()
    assert dirty.take_untold(10) == ({"b"}, {"a"})


def test_without_anybody_to_tell_nothing_is_kept_for_telling():
    dirty: DirtySet[str] = DirtySet()
    dirty.mark(["a"])
    assert dirty.take_untold(10) == (set(), set())


class Pushes(RuleBasedStateMachine):
    """Y3, Y4: at any moment, what Redis does not hold in its latest form is dirty or under way."""

    def __init__(self) -> None:
        super().__init__()
        self.dirty: DirtySet[str] = DirtySet()
        self.here: dict[str, int] = {}
        self.redis: dict[str, int] = {}
        self.under_way: list[tuple[int, dict[str, int | None]]] = []
        self.clock = 0

    @rule(entity=ENTITIES)
    def changes(self, entity):
        self.clock += 1
        self.here[entity] = self.clock
        self.dirty.mark([entity])

    @rule(entity=ENTITIES)
    def is_deleted(self, entity):
        self.here.pop(entity, None)
        self.dirty.mark_deleted([entity])

    @rule()
    def begins_a_push(self):
        if not self.under_way:
            g = self.dirty.drain()
            values = {e: self.here.get(e) for e in g.updated} | dict.fromkeys(g.deleted)
            self.under_way.append((g.number, values))

    @rule(failed=st.sets(ENTITIES))
    def ends_a_push(self, failed):
        if not self.under_way:
            return
        number, values = self.under_way.pop()
        for entity, value in values.items():
            if entity in failed:
                continue
            if value is None:
                self.redis.pop(entity, None)
            else:
                self.redis[entity] = value
        self.dirty.settle(number, failed & values.keys())

    @invariant()
    def nothing_is_lost(self):
        if self.under_way:
            return
        differs = {e for e in "abcdef" if self.here.get(e) != self.redis.get(e)}
        assert len(self.dirty) >= len(differs)
        generation = self.dirty.drain()
        marked = generation.updated | generation.deleted
        self.dirty.settle(generation.number, failed=marked)
        assert differs <= marked


TestPushes = Pushes.TestCase
