"""A small kind for tests of the frame: a Gadget wants ``spec.parts`` Parts, and says how many there are."""

from __future__ import annotations

from dataclasses import dataclass

from virtual_story import as_test

from aibrix_operator.cluster.resource import Resource
from aibrix_operator.controller.keyed import KeyedController
from aibrix_operator.controller.kind import View, children
from aibrix_operator.controller.steps import Create, Delete, Finished, Note, Plan, Ref, SetStatus
from aibrix_operator.sim.keyed import KeyedCluster

GADGETS = Resource("test.example", "v1", "gadgets")
PARTS = Resource("test.example", "v1", "parts")


@dataclass(frozen=True)
class Snapshot:
    gadget: Ref
    wanted: int
    parts: tuple[Ref, ...]
    refused: tuple[Finished, ...]


class Gadgets:
    name, kind, resource = "gadget", "Gadget", GADGETS
    reads = (children(PARTS, "Gadget"),)
    fresh = ""

    def observe(self, view: View) -> Snapshot | None:
        parts = tuple(Ref.of(part) for part in view.children(PARTS) if "deletionTimestamp" not in part["metadata"])
        return Snapshot(Ref.of(view.own), view.own["spec"]["parts"], parts, view.finished)

    def decide(self, seen: Snapshot, memory: str, now) -> tuple[Plan, str]:
        wanted = {f"{seen.gadget.name}-{i}" for i in range(seen.wanted)}
        missing = sorted(wanted - {part.name for part in seen.parts})
        steps = [Create(PARTS, part_of(seen.gadget, name)) for name in missing]
        steps += [Delete(PARTS, part) for part in seen.parts if part.name not in wanted]
        memory = str(seen.refused[0].error) if seen.refused else memory if steps else ""
        status = {"parts": len(seen.parts)} | ({"problem": memory} if memory else {})
        notes = (Note("Normal", "Complete", f"{seen.wanted} parts"),) if not steps and seen.wanted else ()
        return Plan((*steps, SetStatus(status)), notes), memory

    async def perform(self, call):
        raise AssertionError("gadgets call nobody")


def part_of(gadget: Ref, name: str) -> dict:
    owner = {"apiVersion": "test.example/v1", "kind": "Gadget", "controller": True}
    owner |= {"name": gadget.name, "uid": gadget.uid}
    return {"metadata": {"name": name, "namespace": gadget.namespace, "ownerReferences": [owner]}}


def put(cluster: KeyedCluster, name: str = "a", parts: int = 3) -> None:
    """A user applies a Gadget."""
    cluster.store.put(GADGETS, {"metadata": {"name": name, "namespace": "default"}, "spec": {"parts": parts}})


def status(cluster: KeyedCluster, name: str = "a") -> dict:
    return cluster.find(GADGETS, name).get("status", {})


def played(kind=Gadgets, operators: int = 1):
    """Make ``async def story(cluster)`` a test on a cluster of one kind; an error that is logged fails it."""
    return lambda story: as_test(story, lambda: _play(kind, operators, story))


async def _play(kind, operators, story):
    async with KeyedCluster(lambda hub: [KeyedController(kind(), hub)], operators) as cluster:
        await story(cluster)
