"""The operator's own processes: their ends, their clocks, their connections."""

from __future__ import annotations

from aibrix_operator.sim.happening import Stage, fault
from aibrix_operator.sim.operators import SimulatedOperator
from aibrix_operator.sim.sender import SENDER
from aibrix_operator.sim.sidecar import Call, Later

CLOCK_JUMP_S = 600.0
HELD_S = (6.0, 20.0)
"""Longer than it takes another to lead."""


@fault("restarted-operator", 2)
async def operator_restarts(stage: Stage) -> None:
    """The leading operator ends as at SIGTERM, and starts again."""
    leader = stage.cluster.leader
    if leader not in stage.cluster.operators:
        return
    stage.tell(f"{leader.name} restarts")
    await stage.cluster.stop_controller(leader)
    stage.cluster.start_controller()


@fault("killed-operator", 2, needs_election=True)
async def leader_killed(stage: Stage) -> None:
    """The leading operator is killed, and started again later: the other has to lead within 5 s."""
    cluster, leader = stage.cluster, stage.cluster.leader
    others = [o for o in cluster.operators if o is not leader]
    if not others or not leader.is_leader:
        return
    await cluster.kill_controller(leader)
    back_s = stage.lasts(lambda: _start(stage), stage.chance.uniform(0.0, 20.0))
    stage.tell(f"{leader.name} is killed, and comes back after {back_s:.1f} s")

    def is_free() -> bool:
        return all(o in cluster.operators and o.reaches_lease for o in others)

    stage.alongside(cluster.leader_laws.must_take_over(is_free))


def _start(stage: Stage) -> None:
    stage.cluster.start_controller()


@fault("two-leaders", 2, needs_election=True)
def leader_cut_off(stage: Stage) -> None:
    """For a while the leader's election reaches nobody while all else does: the other takes over beside it."""
    leader = stage.cluster.leader
    if not leader.is_leader or leader.is_cut_off:
        return

    leader.is_cut_off = True
    stage.tell(f"{leader.name} cannot renew its lease for {stage.lasts(leader.reconnect):.0f} s")


@fault("held-calls", 2, needs_election=True)
def leader_calls_held(stage: Stage) -> None:
    """What the leader sends to runtimes for some seconds arrives only when another has led and called for a while."""
    leader = stage.cluster.leader
    held = [r for _, r in stage.runtimes() if r.before_call is None]
    if not leader.is_leader or leader.is_cut_off or not held:
        return

    async def before(call: Call) -> Later | None:
        return Later(stage.chance.uniform(*HELD_S)) if SENDER.get() is leader else None

    def undo() -> None:
        leader.reconnect()
        for runtime in held:
            runtime.before_call = None

    leader.is_cut_off = True
    for runtime in held:
        runtime.before_call = before
    for name in stage.claims():  # so that there is something to send
        figures = {"maximumFootprint": f"{stage.chance.randint(2, 24)}Gi", "kvFloor": "1Gi"}
        stage.cluster.patch_claim(name, {"spec": {"perGPU": figures}})
    stage.tell(f"{leader.name} is cut off, and what it sends is held, for {stage.lasts(undo, HELD_S[1]):.0f} s")


@fault("lost-events", 2)
def watches_break(stage: Stage) -> None:
    """For a while an operator's watches bring nothing; it lists anew when it notices, claims that are gone later."""
    operator = stage.pick([o for o in stage.cluster.operators if not o.is_deaf])
    if operator is None:
        return

    def undo() -> None:
        operator.hear_again()
        stage.cluster.laws.hears_again(operator.name)
        stage.lasts(operator.resync, stage.chance.uniform(0.0, 300.0))

    operator.go_deaf()
    stage.cluster.laws.went_deaf(operator.name)
    stage.tell(f"{operator.name} hears of no change for {stage.lasts(undo, stage.chance.uniform(1, 40)):.0f} s")


@fault("clock-jump", 2)
def clock_jumps(stage: Stage) -> None:
    """The wall clock of an operator or of a node jumps by up to ten minutes, and back again later."""
    offset_s = stage.chance.uniform(-CLOCK_JUMP_S, CLOCK_JUMP_S)
    clocks: list[SimulatedOperator] = [o for o in stage.cluster.operators if not o.clock_off_s]
    nodes = [(ip, r) for ip, r in stage.runtimes() if not r.clock_off_s]
    if clocks and (not nodes or stage.chance.random() < 0.5):
        clock, name = stage.chance.choice(clocks), ""
        name = clock.name
        clock.clock_off_s = offset_s

        def undo() -> None:
            clock.clock_off_s = 0.0

    elif nodes:
        ip, runtime = stage.chance.choice(nodes)
        name, runtime.clock_off_s = f"the node of {ip}", offset_s

        def undo() -> None:
            runtime.clock_off_s = 0.0

    else:
        return
    stage.tell(f"the clock of {name} jumps by {offset_s:.0f} s for {stage.lasts(undo):.0f} s")
