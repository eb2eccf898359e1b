"""A Redis Cluster of three nodes: a client's plain SCAN asks one node, and the layer asks the right one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from plain_states import Ageing, Deletable, Plain
from prometheus_client import CollectorRegistry
from redis.asyncio import Redis
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis_server import RedisServer
from sync_replicas import TELLING

from aibrix_operator.statesync.metrics import StatesyncMetrics
from aibrix_operator.statesync.store import RedisStore
from aibrix_operator.statesync.sync import StateSync
from aibrix_operator.statesync.times import NewestTimes

SLOTS = 16_384


@pytest.fixture
def nodes(tmp_path) -> Iterator[list[RedisServer]]:
    servers = [
        RedisServer(tmp_path / str(n), ("--cluster-enabled", "yes", "--cluster-node-timeout", "5000")) for n in range(3)
    ]
    for server in servers:
        server.start()
    yield servers
    for server in servers:
        server.stop()


async def form(nodes: list[RedisServer]) -> None:
    clients = [Redis(port=node.port) for node in nodes]
    for at, client in enumerate(clients):
        share = range(at * SLOTS // 3, (at + 1) * SLOTS // 3)
        await client.execute_command("CLUSTER", "ADDSLOTS", *share)
        await client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", at + 1)
        await client.execute_command("CLUSTER", "MEET", "127.0.0.1", nodes[0].port)
    async with asyncio.timeout(30):
        for client in clients:
            while (await client.cluster("info"))["cluster_state"] != "ok":  # noqa: ASYNC110
                await asyncio.sleep(0.02)  # another process is polled
            await client.aclose()


async def cycle_once(node: RedisServer, **held: bytes) -> list[dict[str, bytes]]:
    """A replica that holds ``held`` in six namespaces; returns what it holds after one cycle. It deletes one entity."""
    client = RedisCluster(startup_nodes=[ClusterNode("127.0.0.1", node.port)])
    sync = StateSync(RedisStore(client, TELLING), TELLING, StatesyncMetrics(CollectorRegistry()))
    states = [kind(f"n{n}", **held) for n, kind in enumerate([Plain, Deletable, Ageing] * 2)]
    for state in states:
        sync.register(state)
    assert await sync.cycle()
    await sync.delete("n1", "x")
    await client.aclose()
    return [state.held for state in states]


async def test_each_namespace_is_read_from_the_node_that_holds_it(nodes):
    await form(nodes)
    await cycle_once(nodes[0], x=b"1", old=b"old")
    both, stale_gone = {"x": b"1", "old": b"old"}, {"x": b"1"}
    assert await cycle_once(nodes[1]) == [both, {"old": b"old"}, stale_gone, both, both, stale_gone]


async def test_changes_are_told_through_a_cluster(nodes):
    await form(nodes)
    made = []
    for node in nodes[:2]:
        client = RedisCluster(startup_nodes=[ClusterNode("127.0.0.1", node.port)])
        registry = CollectorRegistry()
        sync = StateSync(RedisStore(client, TELLING), TELLING, StatesyncMetrics(registry))
        times = NewestTimes("times", 1e6, lambda: 5)
        sync.register(times)
        sync.start()
        made.append((sync, times, client, registry))
    async with asyncio.timeout(20):
        for _, _, _, registry in made:
            while not registry.get_sample_value("aibrix_statesync_listening", {"namespace": "times"}):  # noqa: ASYNC110
                await asyncio.sleep(0.005)  # a metric has no event
        made[0][1].use("x")
        while made[1][1].last_used_ns("x") is None:  # noqa: ASYNC110
            await asyncio.sleep(0.005)  # nor has a state
    for sync, _, client, _ in made:
        await sync.stop()
        await client.aclose()
