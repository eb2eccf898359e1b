"""A pool that is too small for its claims from the first second on: where sleepers wait, move, and give up their seats.

Random pools and claims leave room more often than not, and then nobody is put to sleep for anybody. Schedules of this
kind are played beside the others, on seeds of their own (``schedule.CROWDED_FROM``).
"""

from __future__ import annotations

from aibrix_operator.sim.happening import GIB, Stage
from aibrix_operator.sim.happenings.users import CLAIMS

_LENDS = '"noWakeReserveWhileAsleep":true'
POLICIES = (
    f'{{"lifecycle":{{{_LENDS}}}}}',
    f'{{"lifecycle":{{"sleepAfterSeconds":300,{_LENDS},"sleepToMakeRoomAfterSeconds":30}}}}',
    f'{{"lifecycle":{{"sleepAfterSeconds":40,{_LENDS}}}}}',
    '{"lifecycle":{"sleepAfterSeconds":30}}',
)
CARDS_GIB = (24, 24, 32)
FAULTS = 3
"""Kinds of faults in one such schedule: what always goes wrong excuses much, and the laws are strictest in between."""
WEIGHTS = {
    "apply": 8,
    "delete": 2,
    "policy": 1,
    "ask": 24,
    "load": 6,
    "answer": 4,
    "rest": 6,
    "late-requests": 4,
    "pod": 1,
}
BUSY_WEIGHTS = WEIGHTS | {"load": 24, "rest": 2}
"""Neighbours that are busy all the time: who asks then waits for room, moves, or waits in vain."""


def set_up(stage: Stage) -> None:
    """Two Pods of our own runtime, and claims of which each card can have two or three awake."""
    policy = stage.chance.choice(POLICIES)
    for _ in range(2):
        name, size = stage.cluster.next_pod_name(), stage.chance.choice(CARDS_GIB)
        stage.tell(f"{name} joins with {size} GiB")
        asleep = stage.chance.choice([GIB // 4, GIB])
        boot_s, wake_s = stage.chance.uniform(0.5, 6.0), stage.chance.uniform(0.2, 4.0)
        stage.cluster.add_pod(name, size * GIB, boot_s=boot_s, wake_s=wake_s, can_sleep=True, asleep_bytes=asleep)
    stage.tell(f"the policy is {policy}")
    stage.cluster.set_policy(policy)
    for name in CLAIMS:
        footprint, floor = stage.chance.randint(4, 9), stage.chance.randint(1, 4)
        stage.tell(f"{name} is applied, {footprint}+{floor} GiB, vllm")
        stage.cluster.apply(name, f"{footprint}Gi", f"{floor}Gi", engine="vllm")
