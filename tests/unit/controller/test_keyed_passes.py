"""What the frame does around a kind's decision: writes seen at once, lost answers, conflicts, refusals, terms."""

import asyncio

from keyed_gadgets import GADGETS, PARTS, Gadgets, Snapshot, part_of, played, put, status

from aibrix_operator.cluster import errors
from aibrix_operator.controller.steps import Call, Patch, Plan, Ref, Replace, SetFinalizer, SetStatus

KEY = ("default", "a")


def creates(cluster):
    return [name for verb, plural, name, _ in cluster.store.writes if (verb, plural) == ("create", PARTS.plural)]


@played()
async def test_children_are_made_and_counted_and_nothing_is_written_then(cluster):
    put(cluster)
    await cluster.run(5)
    assert cluster.names_of(PARTS) == ["a-0", "a-1", "a-2"]
    assert status(cluster) == {"parts": 3}
    writes = len(cluster.store.writes)
    cluster.store.change(GADGETS, KEY, {"metadata": {"labels": {"touched": "yes"}}})
    await cluster.run(600)
    assert len(cluster.store.writes) == writes


@played()
async def test_what_was_created_and_deleted_is_seen_before_any_watch_tells_of_it(cluster):
    cluster.store.watch_delay_s = 40.0
    put(cluster)
    await cluster.run(60)
    assert sorted(creates(cluster)) == ["a-0", "a-1", "a-2"]
    assert status(cluster) == {"parts": 3}
    put(cluster, parts=1)
    await cluster.run(60)
    deletes = [name for verb, _, name, _ in cluster.store.writes if verb == "delete"]
    assert sorted(deletes) == ["a-1", "a-2"]
    assert status(cluster) == {"parts": 1}


@played()
async def test_a_lost_answer_is_looked_up_and_not_tried_blindly(cluster):
    lost, tried = [], []

    def try_(verb, resource, name, body):
        if verb == "create":
            tried.append(name)

    def lose(verb, resource, name, body):
        if verb == "create" and len(lost) < 2:
            lost.append(name)
            return errors.Unavailable("no answer")
        return None

    cluster.store.fault, cluster.store.lost = try_, lose
    cluster.store.watch_delay_s = 30.0
    put(cluster)
    await cluster.run(20)
    assert len(lost) == 2
    assert sorted(tried) == ["a-0", "a-1", "a-2"]
    assert status(cluster) == {"parts": 3}


@played()
async def test_a_conflict_is_no_error_and_is_decided_anew(cluster):
    failed = []

    def fail(verb, resource, name, body):
        if verb == "status" and len(failed) < 3:
            failed.append(name)
            return errors.Conflict("it has been modified", status=409)
        return None

    cluster.store.fault = fail
    put(cluster)
    await cluster.run(10)
    assert len(failed) == 3
    assert status(cluster) == {"parts": 3}


@played()
async def test_a_refusal_is_told_to_the_next_pass_and_slows_down_what_is_tried_again(cluster):
    tried = []

    def refuse(verb, resource, name, body):
        if verb == "create" and name == "a-1":
            tried.append(asyncio.get_running_loop().time())
            return errors.Invalid("a-1 is not wanted here", status=422)
        return None

    cluster.store.fault = refuse
    put(cluster)
    await cluster.run(60)
    assert status(cluster) == {"parts": 2, "problem": "a-1 is not wanted here"}
    assert 3 < len(tried) < 20
    cluster.store.fault = lambda *_: None
    await cluster.run(60)
    assert status(cluster) == {"parts": 3}


@played()
async def test_another_objects_name_is_told_with_what_has_it(cluster):
    cluster.store.put(PARTS, {"metadata": {"name": "a-1", "namespace": "default"}})
    put(cluster)
    await cluster.run(5)
    assert status(cluster)["parts"] == 2
    assert "already exists" in status(cluster)["problem"]
    cluster.store.delete(PARTS, ("default", "a-1"))
    await cluster.run(60)
    assert status(cluster) == {"parts": 3}


@played()
async def test_a_child_that_another_hand_deleted_is_made_again_and_a_namesake_is_not_deleted(cluster):
    put(cluster)
    await cluster.run(5)
    cluster.store.delete(PARTS, ("default", "a-2"))
    await cluster.run(5)
    assert cluster.names_of(PARTS) == ["a-0", "a-1", "a-2"]
    (operator,) = cluster.operators
    operator.is_deaf = True  # it does not hear that a-2 is another's by now
    cluster.store.delete(PARTS, ("default", "a-2"))
    cluster.store.put(PARTS, {"metadata": {"name": "a-2", "namespace": "default", "labels": {"of": "another"}}})
    operator.is_deaf = False
    put(cluster, parts=2)
    await cluster.run(5)
    assert cluster.find(PARTS, "a-2")["metadata"]["labels"] == {"of": "another"}
    assert status(cluster) == {"parts": 2}


@played()
async def test_children_go_with_their_owner_and_a_namesake_of_it_begins_afresh(cluster):
    put(cluster)
    await cluster.run(5)
    cluster.store.delete(GADGETS, KEY)
    put(cluster, parts=2)
    await cluster.run(60)
    uid = cluster.find(GADGETS, "a")["metadata"]["uid"]
    owners = {part["metadata"]["ownerReferences"][0]["uid"] for part in cluster.store.of(PARTS)}
    assert (cluster.names_of(PARTS), owners) == (["a-0", "a-1"], {uid})
    assert status(cluster) == {"parts": 2}


@played(operators=2)
async def test_a_new_leader_lists_the_children_before_it_decides(cluster):
    cluster.store.watch_delay_s = 20.0
    await cluster.run(5)
    put(cluster, parts=4)
    await cluster.run(25)
    await cluster.kill_operator(cluster.leader)
    cluster.start_operator()
    await cluster.run(60)
    assert sorted(creates(cluster)) == ["a-0", "a-1", "a-2", "a-3"]
    assert status(cluster) == {"parts": 4}


@played(operators=2)
async def test_a_leader_that_is_cut_off_writes_nothing_more(cluster):
    await cluster.run(5)
    former = cluster.leader
    former.is_cut_off = True
    await cluster.run(10)
    assert cluster.leader not in (None, former)
    put(cluster)
    await cluster.run(10)
    assert len(creates(cluster)) == 3
    assert status(cluster) == {"parts": 3}


@played()
async def test_equal_events_are_one(cluster):
    put(cluster, parts=1)
    await cluster.run(5)
    for i in range(3):
        cluster.store.change(GADGETS, KEY, {"metadata": {"labels": {"touched": str(i)}}})
        await cluster.run(1)
    assert cluster.events() == [("Complete", "1 parts")]


class Painters(Gadgets):
    """Paints each part, which may be gone by then."""

    def observe(self, view):
        return view

    def decide(self, view, memory, now):
        bare = [part for part in view.children(PARTS) if "spec" not in part]
        if view.own["spec"]["parts"] == 0:
            return Plan(tuple(Replace(PARTS, {**part, "spec": {"colour": "red"}}) for part in bare)), memory
        return Plan(tuple(Patch(PARTS, Ref.of(part), {"spec": {"colour": "red"}}) for part in bare)), memory


@played(kind=Painters)
async def test_a_child_that_is_gone_before_it_is_changed_is_no_error(cluster):
    for parts in (3, 0):
        put(cluster, parts=parts)
        await cluster.run(5)
        (operator,) = cluster.operators
        operator.is_deaf = True  # it hears of neither the part nor its end but from the answer
        body = part_of(Ref.of(cluster.find(GADGETS, "a")), "a-0")
        cluster.store.put(PARTS, body)
        operator.hear_again()
        operator.is_deaf = True
        cluster.store.delete(PARTS, ("default", "a-0"))
        await cluster.run(5)
        assert operator.hub.caches.of(Gadgets.reads[0].selection).get(("default", "a-0")) is None
        assert not cluster.names_of(PARTS)
        operator.hear_again()


class Callers(Gadgets):
    """Each Gadget calls somebody once, who takes a minute, and is told of twice."""

    def observe(self, view):
        return view

    def decide(self, view, memory, now):
        answers = [f.value or str(f.error) for f in view.finished]
        memory = answers[0] if answers else memory
        steps = () if memory or view.calls else (Call("phone", view.own["spec"]["parts"]),)
        return Plan((*steps, SetStatus({"calls": sorted(view.calls), "answer": memory})), look_after_s=1.0), memory

    async def perform(self, call):
        await asyncio.sleep(60)
        if call.what == 0:
            raise ZeroDivisionError("nobody there")
        return f"for {call.what}"


@played(kind=Callers)
async def test_a_call_that_takes_long_holds_up_no_pass_and_its_end_is_told(cluster):
    put(cluster)
    put(cluster, "b", parts=0)
    await cluster.run(30)
    assert status(cluster) == {"calls": ["phone"], "answer": ""}
    await cluster.run(31)
    assert status(cluster) == {"calls": [], "answer": "for 3"}
    assert status(cluster, "b")["answer"] == "nobody there"


class Tidy(Gadgets):
    """Gadgets that clean up themselves."""

    def decide(self, seen: Snapshot, memory, now):
        return Plan((SetFinalizer("test.example/tidy", True),)), memory

    def observe(self, view):
        return None if view.own["spec"]["parts"] == 0 else view


@played(kind=Tidy)
async def test_a_finalizer_is_put_on_once(cluster):
    put(cluster)
    put(cluster, "nothing-to-do", parts=0)
    await cluster.run(60)
    assert cluster.find(GADGETS, "a")["metadata"]["finalizers"] == ["test.example/tidy"]
    assert [verb for verb, *_ in cluster.store.writes] == ["finalize"]


class Leaving(Gadgets):
    """Takes its finalizer off beside the deletion of its parts."""

    def decide(self, seen, memory, now):
        plan, memory = super().decide(seen, memory, now)
        return Plan((*plan.steps[:-1], SetFinalizer("test.example/tidy", False))), memory


@played(kind=Leaving)
async def test_a_finalizer_stays_while_a_step_of_the_same_plan_is_refused(cluster):
    put(cluster, parts=0)
    (own,) = cluster.store.of(GADGETS)
    owner = {"kind": "Gadget", "name": "a", "uid": own["metadata"]["uid"], "controller": True}
    metadata = {"name": "a-0", "namespace": "default", "ownerReferences": [owner]}
    cluster.store.put(PARTS, {"metadata": metadata})
    cluster.store.change(GADGETS, KEY, {"metadata": {"finalizers": ["test.example/tidy"]}})
    cluster.store.fault = lambda verb, *_: errors.Denied("no") if verb == "delete" else None
    await cluster.run(30)
    assert cluster.find(GADGETS, "a")["metadata"]["finalizers"] == ["test.example/tidy"]
    cluster.store.fault = lambda *_: None
    await cluster.run(60)
    assert not cluster.find(GADGETS, "a")["metadata"]["finalizers"]
    assert not cluster.names_of(PARTS)
