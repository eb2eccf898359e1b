"""Words for stories of engines that sleep and are woken."""

from __future__ import annotations

import json

from simulated import CARD_24, model

from aibrix_operator.api import names
from aibrix_operator.api.modelclaim import ClaimPhase, InstancePhase
from aibrix_operator.api.route import Route, RouteState
from aibrix_operator.cluster.resource import MODEL_CLAIMS, PODS
from aibrix_operator.runtime_api.wire import EnginePhase
from aibrix_operator.sim.world import NAMESPACE


def policy(**lifecycle):
    """A pool's policy."""
    return json.dumps({"lifecycle": lifecycle})


def lending(make_room_after_s=30, sleep_after_s=3600):
    """The policy of a pool whose sleepers lend their seats."""
    return policy(
        sleepAfterSeconds=sleep_after_s,
        noWakeReserveWhileAsleep=True,
        sleepToMakeRoomAfterSeconds=make_room_after_s,
    ).replace(" ", "")


async def one_asleep(cluster, the_policy=None, **runtime):
    """Claim a asleep and b served on one card of 24 GiB, 6+1 GiB each."""
    pod = cluster.add_pod("warm-0", CARD_24, **runtime)
    cluster.set_policy(the_policy or policy(sleepAfterSeconds=3600))
    for claim in "ab":
        cluster.apply(claim, "6Gi", "1Gi")
    await cluster.run(15)
    pod.sleep(model("a"), pod.asleep_bytes)
    await cluster.run(3)
    assert cluster.status("a").phase == ClaimPhase.SLEEPING
    pod.calls.clear()
    return pod


async def restart(cluster):
    """End the controller, and start one that knows nothing."""
    await cluster.stop_controller()
    cluster.start_controller()


def seat_asleep(cluster, name, pod, footprint, floor, *, limit_bytes, asleep_bytes, mapped_bytes=0):
    """A claim whose engine has slept on the Pod for long."""
    engine = cluster.seat(name, pod, footprint, floor, limit_bytes=limit_bytes, mapped_bytes=mapped_bytes)
    engine.phase, engine.sleeping_footprint_bytes = EnginePhase.SLEEPING, asleep_bytes
    instance = cluster.status(name).instances[0].model_copy(update={"phase": InstancePhase.SLEEPING})
    status = {"instances": [instance.model_dump(mode="json", by_alias=True)], "phase": "Sleeping", "readyReplicas": 0}
    cluster.store.change(MODEL_CLAIMS, (NAMESPACE, name), {"status": status})
    text = Route(model=engine.model, port=0, state=RouteState.SLEEPING).to_annotation()
    annotations = {"metadata": {"annotations": {names.route_annotation(name): text}}}
    cluster.store.change(PODS, (NAMESPACE, pod), annotations)
    return engine


def route(cluster, pod, claim):
    """The claim's route on the Pod as (state, port, reason); None without one."""
    text = cluster.annotations(pod).get(names.route_annotation(claim))
    if text is None:
        return None
    value = json.loads(text)
    return value["state"], value["port"], value.get("reason", "")


def asked(cluster, pod, claim):
    """Whether the Pod carries a request to wake the claim."""
    return names.wake_annotation(claim) in cluster.annotations(pod)


def uid(cluster, pod):
    """The Pod's UID."""
    return cluster.store.objects[PODS.plural, NAMESPACE, pod]["metadata"]["uid"]


def claim_uid(cluster, claim):
    """The claim's UID."""
    return cluster.store.objects[MODEL_CLAIMS.plural, NAMESPACE, claim]["metadata"]["uid"]


def calls(runtime, *actions):
    """(action, model, bytes) of the calls of these kinds, in order."""
    return [call[:3] for call in runtime.calls if call[0] in actions]


def when_route_turns(cluster, state, do):
    """Have ``do()`` run once, right after the next route of that state was written."""
    done = []

    def look(verb, resource, name, body):
        if verb == "annotate" and not done:
            values = [v for v in body["metadata"]["annotations"].values() if v]
            if any(f'"state":"{state}"' in v for v in values):
                done.append(True)
                do()

    cluster.store.lost = look


def hear(cluster):
    """(claim or Deployment, reason, message) of every Event raised from now on; equal ones are not merged here."""
    heard, recorder = [], cluster.world.recorder
    emit = recorder.emit

    def listen(regarding, kind, reason, message, action):
        heard.append((regarding.name, str(reason), message))
        emit(regarding, kind, reason, message, action)

    recorder.emit = listen
    return heard


def times(heard, reason, name=None):
    """How often an Event of that reason was raised."""
    return sum(r == reason and name in (None, n) for n, r, _ in heard)


async def until(cluster, is_so, within_s):
    """Let time pass until ``is_so()``; the seconds it took. Fails after ``within_s``."""
    step = 0.25
    for n in range(int(within_s / step) + 1):
        if is_so():
            return n * step
        await cluster.run(step)
    raise AssertionError(f"not so within {within_s} s")
