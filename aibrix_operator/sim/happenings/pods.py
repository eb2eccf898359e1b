"""Pods that come, go and are not ready."""

from __future__ import annotations

from aibrix_operator.api import names
from aibrix_operator.sim.happening import GIB, Stage, event, fault

CARDS_GIB = (24, 40, 80, 95)
PODS_AT_MOST = 4
LOOK_S = 10.0
"""What happens in schedules tells the change feed itself."""


@event("pod", 3)
def pod_joins(stage: Stage) -> None:
    """A warm Pod joins the pool."""
    if len(stage.pods()) < PODS_AT_MOST:
        add_pod(stage)


def add_pod(stage: Stage, *, ip: str | None = None) -> str:
    """A Pod under a name that none had before; its name. ``ip`` None: nor under its address."""
    name, size = stage.cluster.next_pod_name(), stage.chance.choice(CARDS_GIB)
    stage.tell(f"{name} joins with {size} GiB")
    boot_s, stop_s = stage.chance.uniform(0, 20), stage.chance.choice([0.0, 0.0, 15.0])
    can_sleep, has_feed = stage.chance.choice([(True, True), (True, True), (None, False)])  # ours, or upstream's
    stage.cluster.add_pod(name, size * GIB, ip=ip, boot_s=boot_s, stop_s=stop_s, can_sleep=can_sleep, has_feed=has_feed)
    return name


@fault("killed-pod", 1)
def pod_leaves(stage: Stage) -> None:
    """A Pod is deleted with all its engines."""
    pods = stage.pods()
    if len(pods) > 1:
        name = stage.chance.choice(pods)
        stage.tell(f"{name} leaves")
        stage.cluster.delete_pod(name)


@fault("unready-pod", 1)
def pod_flips(stage: Stage) -> None:
    """A Pod ceases to be ready for a while."""
    name = stage.pick(stage.pods())
    if name is None:
        return
    stage.cluster.set_pod_ready(name, False)
    for_s = stage.lasts(lambda: stage.cluster.set_pod_ready(name, True) if name in stage.pods() else None)
    stage.tell(f"{name} is not ready for {for_s:.0f} s")


@fault("unlabelled-pod", 1)
def pod_unlabelled(stage: Stage) -> None:
    """Somebody takes a Pod out of the pool for a while by its label."""
    name = stage.pick(stage.pods())
    if name is None:
        return
    stage.cluster.label_pod(name, {names.ENABLED_LABEL: None})

    def label_again() -> None:
        if name in stage.pods():
            stage.cluster.label_pod(name, {names.ENABLED_LABEL: "true"})

    stage.tell(f"{name} is out of the pool for {stage.lasts(label_again):.0f} s")


@fault("reused-ip", 1)
def address_reused(stage: Stage) -> None:
    """A Pod is deleted, and at once another one has its address."""
    pods = stage.pods()
    if not pods:
        return
    name = stage.chance.choice(pods)
    ip = stage.cluster.ip_of(name)
    stage.cluster.delete_pod(name)
    stage.tell(f"{name} leaves, and {add_pod(stage, ip=ip)} has its address {ip}")
