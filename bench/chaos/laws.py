"""The ledger's laws, checked from outside: against what is recorded, what sidecars say, and who says that it leads."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from aibrix_operator.cluster import errors
from aibrix_operator.cluster.resource import MODEL_CLAIMS, Object
from aibrix_operator.sandbox import pool
from bench.chaos import stage as staging
from bench.chaos.stage import Stage

LOOK_S = 0.5
ANSWERED_WITHIN_S = 20.0
"""An engine that was killed comes back at its own default limit, the whole card. So long that may last: the restart of
whoever has to see it, a reading, a pass and the write."""
TWICE_WITHIN_S = 3.0
"""Sidecars are asked one after the other, so an engine that moves may be seen on both Pods for a moment."""
_GONE = {"stopping", "failed"}


class Laws:
    """Looks until it is cancelled."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.broken: list[str] = []
        self.looks = 0
        self.longest_over_s = 0.0
        """The longest time that limits in force and footprints of one card summed to more than it has."""
        self._since: dict[str, float] = {}
        """What is not as it should be → since when."""
        self._terms: tuple[str, int] = ("", -1)

    async def run(self) -> None:
        await asyncio.gather(self._watch_cards(), self._watch_leaders())

    async def _watch_cards(self) -> None:
        while True:
            pods = self._stage.ready_pods()
            snapshots = dict(zip(map(_name, pods), await asyncio.gather(*map(self._stage.snapshot, pods)), strict=True))
            usable = {pod: _usable_bytes(said) for pod, said in snapshots.items() if said is not None}
            await self._check_records(usable)
            self._check_limits(usable, snapshots)
            self._check_one_engine(snapshots)
            self.looks += 1
            await asyncio.sleep(LOOK_S)

    async def _check_records(self, usable: Mapping[str, int]) -> None:
        """What is recorded is promised, and one list is of one moment: not for an instant may it be too much."""
        try:
            claims, _ = await self._stage.cluster.list_all(MODEL_CLAIMS, pool.NAMESPACE)
        except errors.ClusterError:
            return  # the next look asks again
        promised: dict[str, int] = defaultdict(int)
        for claim in claims:
            for instance in claim.get("status", {}).get("instances", ()):
                if instance["phase"] != "Failed":
                    promised[instance["pod"]] += staging.footprint_bytes() + instance.get("kvLimitBytes", 0)
        for pod, total in promised.items():
            if pod in usable and total > usable[pod]:
                self.broken.append(f"{total} bytes are promised on pod {pod}, which has {usable[pod]}")

    def _check_limits(self, usable: Mapping[str, int], snapshots: Mapping[str, Mapping[str, Any] | None]) -> None:
        for pod, said in snapshots.items():
            if said is None:
                continue
            alive = [e for e in said["models"] if e["alive"] and e["phase"] not in _GONE]
            held = sum(staging.footprint_bytes() + max(0, e["kv_capacity_bytes"]) for e in alive)
            lasted_s = self._lasts(f"over {pod}", held > usable[pod])
            self.longest_over_s = max(self.longest_over_s, lasted_s)
            if lasted_s > ANSWERED_WITHIN_S:
                self.broken.append(f"for {lasted_s:.0f} s engines of pod {pod} were held to {held} of {usable[pod]}")

    def _check_one_engine(self, snapshots: Mapping[str, Mapping[str, Any] | None]) -> None:
        where: dict[str, list[str]] = defaultdict(list)
        for pod, said in snapshots.items():
            for engine in () if said is None else said["models"]:
                if engine["alive"] and engine["phase"] not in _GONE:
                    where[engine["model_name"]].append(pod)
        for model in {*where, *(key.removeprefix("twice ") for key in self._since if key.startswith("twice "))}:
            pods = where.get(model, [])
            if self._lasts(f"twice {model}", len(pods) > 1) > TWICE_WITHIN_S:
                self.broken.append(f"{model} has {len(pods)} engines: on {', '.join(pods)}")

    def _lasts(self, what: str, is_so: bool) -> float:
        """For how many seconds it has been so."""
        if not is_so:
            self._since.pop(what, None)
            return 0.0
        now_s = time.monotonic()
        return now_s - self._since.setdefault(what, now_s)

    async def _watch_leaders(self) -> None:
        """Never two at once, and each term later than the last."""
        while True:
            replicas = self._stage.replicas()
            for one in replicas:
                for other in replicas:
                    # One leads before and after the other is asked: only then did both at once.
                    if one != other and await self._both_lead(one, other):
                        self.broken.append(f"processes {one.process.pid} and {other.process.pid} lead at once")
            for replica in replicas:
                if count := await self._stage.violations(replica):
                    self.broken.append(f"operator {replica.process.pid} counts {count:.0f} broken laws")
            await self._check_lease()
            await asyncio.sleep(LOOK_S / 5)

    async def _both_lead(self, one: staging.Replica, other: staging.Replica) -> bool:
        leads = self._stage.leads
        return await leads(one) and await leads(other) and await leads(one)

    async def _check_lease(self) -> None:
        try:
            lease = await self._stage.lease()
        except errors.ClusterError:
            return  # the next look asks again
        term = (lease["metadata"]["creationTimestamp"], lease["spec"].get("leaseTransitions", 0))
        if term < self._terms:
            self.broken.append(f"the Lease went back from term {self._terms} to {term}")
        self._terms = term


def _name(pod: Object) -> str:
    name: str = pod["metadata"]["name"]
    return name


def _usable_bytes(said: Mapping[str, Any]) -> int:
    usable: int = min(card["hbm_usable_bytes"] for card in said["accelerators"])
    return usable
