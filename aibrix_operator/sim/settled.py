"""Whether a simulated cluster has come to rest: what must hold once faults stop and time has passed."""

from __future__ import annotations

import dataclasses

from aibrix_operator.api import names
from aibrix_operator.api.modelclaim import ClaimPhase, ConditionType, Instance, InstancePhase, Reason
from aibrix_operator.api.route import parse_route
from aibrix_operator.cluster.resource import MODEL_CLAIMS, PODS
from aibrix_operator.modelclaim.accounts import Account, open_accounts
from aibrix_operator.modelclaim.parse import parse_claim, parse_pod, slim_pod
from aibrix_operator.modelclaim.placing import is_candidate
from aibrix_operator.modelclaim.snapshot import Claim, Fleet, Pod, Reading
from aibrix_operator.sim import at_rest
from aibrix_operator.sim.world import NAMESPACE, SimulatedCluster


def unsettled(cluster: SimulatedCluster) -> list[str]:
    """What is not as it should be, one sentence each; empty when every claim that fits is served and the others say why
    not, and nothing is left of what is gone."""
    fleet = _look(cluster)
    accounts = open_accounts(fleet)
    found = []
    for claim in fleet.claims:
        found += _unsettled_claim(claim, fleet, accounts)
    names_of_claims = {c.name for c in fleet.claims}
    uids = {c.uid for c in fleet.claims}
    for pod in fleet.pods.values():
        for key in pod.annotations:
            if key.startswith(names.WAKE_PREFIX):
                found.append(f"{pod.name} still carries {key}")
            elif key.removeprefix(names.ROUTE_PREFIX) not in names_of_claims:
                found.append(f"{pod.name} still carries {key}, and its claim is gone")
        for engine in pod.reading.snapshot.models if pod.reading.snapshot is not None else ():
            if engine.claim_ref is not None and engine.claim_ref.uid not in uids:
                found.append(f"{pod.name} still runs {engine.model_name} ({engine.phase}), and its claim is gone")
    return found


def all_unsettled(cluster: SimulatedCluster) -> list[str]:
    """Both: for clusters that have been calm."""
    return unsettled(cluster) + unsettled_figures(cluster)


def unsettled_figures(cluster: SimulatedCluster) -> list[str]:
    """What is not as it should be of limits and room, where no request runs and no KV is mapped."""
    return at_rest.unsettled_figures(_look(cluster))


def _look(cluster: SimulatedCluster) -> Fleet:
    """Everything as it is, read past the controller."""
    claims, pods = [], {}
    for (plural, _, name), obj in cluster.store.objects.items():
        if plural == MODEL_CLAIMS.plural:
            claims.append(parse_claim(obj))
        elif plural == PODS.plural:
            pod = parse_pod(slim_pod(dict(obj)))
            runtime = cluster.runtimes.by_ip.get(pod.ip)
            reading = Reading(error="gone") if runtime is None else Reading(1, runtime.snapshot())
            pods[name] = dataclasses.replace(pod, reading=reading)
    return Fleet(NAMESPACE, tuple(sorted(claims, key=lambda c: c.age_key)), pods)


def _unsettled_claim(claim: Claim, fleet: Fleet, accounts: dict[str, Account]) -> list[str]:
    if claim.is_deleting:
        return [f"{claim.name} was deleted at {claim.deleting_since}, and is still there"]
    conditions = {c.type: c for c in claim.status.conditions}
    if not claim.status.instances:
        if claim.engine_error or claim.seat is None:
            return []
        scheduled = conditions.get(ConditionType.SCHEDULED)
        if scheduled is None or scheduled.status != "False" or not scheduled.message:
            return [f"{claim.name} is {claim.status.phase} without an engine, and does not say why"]
        fits = [p.name for p in fleet.pods.values() if _fits(claim, p, accounts[p.name])]
        return [f"{claim.name} waits ({scheduled.message}), and fits on {', '.join(fits)}"] if fits else []
    found = []
    for instance in claim.status.instances:
        pod = fleet.pods.get(instance.pod)
        if pod is None:
            found.append(f"{claim.name} is recorded on {instance.pod}, which is gone")
            continue
        text = pod.annotations.get(names.route_annotation(claim.name))
        if not _says_so(text, claim.model, instance):
            found.append(f"{claim.name} is {instance.phase} on {pod.name}, and its route says {text}")
        sitting = next(s for s in accounts[pod.name].sittings if s.claim.uid == claim.uid)
        record = instance.kv_limit_bytes
        if instance.reason == Reason.WAITING_FOR_ROOM:
            found.append(f"{claim.name} still waits for room on {pod.name}, and its request is over")
        if claim.status.phase is ClaimPhase.ACTIVE and record and sitting.limit_in_force > record:
            found.append(f"{claim.name} is held to {sitting.limit_in_force} on {pod.name}, and its record is {record}")
    if claim.status.phase not in (ClaimPhase.ACTIVE, ClaimPhase.SLEEPING, ClaimPhase.FAILED):
        ready = conditions.get(ConditionType.READY)
        why = "" if ready is None else f"{ready.reason}: {ready.message}"
        found.append(f"{claim.name} is {claim.status.phase} ({why}), and nothing stands in its way")
    return found


def _says_so(text: str | None, model: str, instance: Instance) -> bool:
    """Whether the route tells what the instance is."""
    if text is None:
        return False
    route = parse_route(text)
    port = instance.port if instance.phase is InstancePhase.ACTIVE else 0
    return (route.model, route.state, route.port) == (model, instance.phase.lower(), port)


def _fits(claim: Claim, pod: Pod, account: Account) -> bool:
    wanted_gpus = claim.parallelism if claim.spec.engine == "vllm" else 0
    if claim.seat is None or account.card is None or not is_candidate(pod, claim, wanted_gpus):
        return False
    return account.card.fits(claim.seat)
