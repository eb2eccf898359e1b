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
CALL_FAULTS = ("lost-call", "late-call", "repeated-call", "silent-runtime")
"""One of them is in each such schedule: every step of a sleep or a wake is a call."""
OTHER_FAULTS = 2
"""So many kinds of others: what always goes wrong excuses much, and the laws are strictest in between."""
ASKED = {
    "apply": 6,
    "delete": 2,
    "policy": 1,
    "pod": 1,
    "ask": 18,
    "rush": 8,
    "late-requests": 4,
    "load": 3,
    "answer": 6,
    "rest": 6,
}
"""Sleepers are asked for all the time, beside neighbours some of which are idle."""
BUSY = ASKED | {"load": 24, "rest": 2}
"""Neighbours are busy all the time: who is asked for waits for room, moves, or waits in vain."""
APPLIED = ASKED | {"apply": 20, "delete": 10, "ask": 4, "rush": 2, "load": 2, "answer": 8, "rest": 8}
"""New claims, large and small, want the room of engines that are mostly idle."""
FLAVOURS = (ASKED, BUSY, APPLIED)
"""Happening → how often, relative to the others; each schedule has one."""


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
