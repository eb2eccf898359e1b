"""The whole of a kind, as docs/architecture.md shows it."""

from pathlib import Path

from aibrix_operator.cluster.resource import Resource
from aibrix_operator.controller.keyed import KeyedController
from aibrix_operator.controller.kind import children
from aibrix_operator.controller.steps import Create, Plan, SetStatus
from aibrix_operator.sim import loop
from aibrix_operator.sim.keyed import KeyedCluster

# --- example: begin
NOTEBOOKS = Resource("test.example", "v1", "notebooks")
CONFIG_MAPS = Resource("", "v1", "configmaps")


class Notebooks:
    """A Notebook gets one ConfigMap, and says so."""

    name, kind, resource = "notebook", "Notebook", NOTEBOOKS
    reads = (children(CONFIG_MAPS, "Notebook", label_selector="notebook"),)
    fresh = None

    def observe(self, view):
        return view.own["metadata"], len(view.children(CONFIG_MAPS))

    def decide(self, snapshot, memory, now):
        metadata, count = snapshot
        status = SetStatus({"phase": "Ready" if count else "Pending"})
        if count:
            return Plan((status,)), memory
        owner = {"apiVersion": "test.example/v1", "kind": "Notebook", "controller": True}
        owner |= {"name": metadata["name"], "uid": metadata["uid"]}
        named = {"name": metadata["name"], "namespace": metadata["namespace"], "labels": {"notebook": ""}}
        return Plan((Create(CONFIG_MAPS, {"metadata": named | {"ownerReferences": [owner]}}), status)), memory

    async def perform(self, call):
        raise AssertionError("no step of it takes long")


def test_a_notebook_gets_its_config_map():
    async def story():
        async with KeyedCluster(lambda hub: [KeyedController(Notebooks(), hub)]) as cluster:
            cluster.store.put(NOTEBOOKS, {"metadata": {"name": "a", "namespace": "default"}})
            await cluster.run(1)
            assert cluster.names_of(CONFIG_MAPS) == ["a"]
            assert cluster.find(NOTEBOOKS, "a")["status"] == {"phase": "Ready"}

    loop.run(story())
    # --- example: end


def test_the_example_is_that_of_the_docs():
    source = Path(__file__).read_text()
    example = source.partition("# --- example: begin\n")[2].partition("    # --- example: end")[0].rstrip()
    assert example in (Path(__file__).parents[3] / "docs" / "architecture.md").read_text()
