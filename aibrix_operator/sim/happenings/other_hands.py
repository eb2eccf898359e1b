"""Other hands on what is the operator's alone: statuses, routes and policies wiped or forged, claims made anew.

Most of them do it as GitOps tools do: again each minute, for a while.
"""

from __future__ import annotations

from collections.abc import Callable

from aibrix_operator.api import names
from aibrix_operator.cluster.resource import MODEL_CLAIMS, PODS, Object
from aibrix_operator.modelclaim.parse import parse_claim
from aibrix_operator.sim.happening import Stage, fault
from aibrix_operator.sim.happenings.users import apply
from aibrix_operator.sim.world import NAMESPACE

EACH_S = 60.0
TIMES = 3
_FORGED_STATUSES: tuple[object, ...] = (
    {"phase": "Active", "readyReplicas": 1, "instances": None},
    {"phase": "Pending", "conditions": []},
    {"instances": [{"pod": "nowhere", "port": 20000, "phase": "Active", "kvLimitBytes": 1}]},
    {"instances": [{"pod": "nowhere", "phase": "Sleeping", "reason": "Moving", "kvLimitBytes": 0}] * 2},
    {"instances": "none", "phase": 7},
)
_FORGED_ROUTES = ("", "{", "[]", '{"model":"another","port":1,"state":"active","wakeByRequest":true}', "\x00")
_WRONG_POLICIES = ("{", "[]", '{"lifecycle":{"sleepAfterSeconds":-1}}', '{"lifecycle":{"unknown":true}}')


def _each_minute(stage: Stage, do: Callable[[], None]) -> None:
    """Now, and once more after each of the next minutes."""
    do()
    is_over = False

    def again(left: int) -> None:
        if is_over:
            return
        do()
        if left > 1:
            stage.cluster.later(EACH_S, lambda: again(left - 1))

    def undo() -> None:
        nonlocal is_over
        is_over = True

    times = stage.chance.randint(0, TIMES)
    if times:
        stage.cluster.later(EACH_S, lambda: again(times))
    stage.lasts(undo, EACH_S * (times + 1))


def _set_status(stage: Stage, claim: str, status: object) -> None:
    if claim in stage.claims():
        obj = stage.cluster.store.objects[MODEL_CLAIMS.plural, NAMESPACE, claim]
        stage.cluster.store.put(MODEL_CLAIMS, {**obj, "status": status})


@fault("wiped-status", 2)
def status_wiped(stage: Stage) -> None:
    """Somebody applies a claim with an empty status, each minute for a while."""
    claim = stage.pick(stage.claims())
    if claim is not None:
        stage.tell(f"the status of {claim} is wiped")
        _each_minute(stage, lambda: _set_status(stage, claim, {}))


def _has_record(stage: Stage, claim: str) -> bool:
    """Whether the status names an instance, as far as it can be read: yet another hand may have been there before."""
    return bool(parse_claim(stage.cluster.store.objects[MODEL_CLAIMS.plural, NAMESPACE, claim]).status.instances)


@fault("forged-record", 1)
def record_forged(stage: Stage) -> None:
    """Somebody writes another KV limit, port or phase into a claim's record, or the record twice."""
    claim = stage.pick([c for c in stage.claims() if _has_record(stage, c)])
    if claim is None:
        return
    obj = stage.cluster.store.objects[MODEL_CLAIMS.plural, NAMESPACE, claim]
    record = dict(obj["status"]["instances"][0])
    record |= stage.chance.choice(
        [
            {"kvLimitBytes": stage.chance.choice([1, 1 << 40])},
            {"port": 1},
            {"phase": "Sleeping"},
            {"phase": "Failed"},
            {},
        ]
    )
    stage.tell(f"the record of {claim} is forged: {record}")
    _set_status(stage, claim, {**obj["status"], "instances": [record] * stage.chance.choice([1, 1, 2])})


@fault("forged-status", 1)
def status_forged(stage: Stage) -> None:
    """Somebody writes a status that is not true, or no status at all."""
    claim = stage.pick(stage.claims())
    if claim is not None:
        status = stage.chance.choice(_FORGED_STATUSES)
        stage.tell(f"the status of {claim} is forged: {status}")
        _set_status(stage, claim, status)
        stage.lasts(lambda: _mend(stage, claim, status), 60.0)


def _mend(stage: Stage, claim: str, forged: object) -> None:
    """What cannot be read is for its writer to take back: the operator leaves it alone, and says so."""
    if claim in stage.claims():
        obj = stage.cluster.store.objects[MODEL_CLAIMS.plural, NAMESPACE, claim]
        if obj.get("status") == forged:
            _set_status(stage, claim, {})


def _annotate(stage: Stage, pod: str, annotations: dict[str, str | None]) -> None:
    if pod in stage.pods():
        stage.cluster.store.change(PODS, (NAMESPACE, pod), {"metadata": {"annotations": annotations}})


@fault("wiped-routes", 2)
def routes_wiped(stage: Stage) -> None:
    """Somebody takes all routes and requests off a Pod, each minute for a while."""
    pod = stage.pick(stage.pods())
    if pod is None:
        return

    def wipe() -> None:
        if pod in stage.pods():
            _annotate(stage, pod, dict.fromkeys(stage.cluster.annotations(pod)))

    stage.tell(f"the annotations of {pod} are wiped")
    _each_minute(stage, wipe)


@fault("forged-routes", 1)
def routes_forged(stage: Stage) -> None:
    """Somebody writes routes and requests of claims that are not there, or that say what is not so."""
    pod, claim = stage.pick(stage.pods()), stage.pick([*stage.claims(), "nobody"])
    if pod is not None and claim is not None:
        text = stage.chance.choice(_FORGED_ROUTES)
        key = stage.chance.choice([names.route_annotation(claim), names.wake_annotation(claim)])
        stage.tell(f"{key} of {pod} is forged: {text!r}")
        _annotate(stage, pod, {key: text})


@fault("reset-policy", 1)
def policy_reset(stage: Stage) -> None:
    """Somebody takes the pool's policy away, each minute for a while."""
    stage.tell("the policy is taken away")
    _each_minute(stage, lambda: stage.cluster.set_policy(None))


@fault("wrong-policy", 1)
def policy_wrong(stage: Stage) -> None:
    """Somebody writes a policy that cannot be read."""
    policy = stage.chance.choice(_WRONG_POLICIES)
    stage.tell(f"the policy is {policy}")
    stage.cluster.set_policy(policy)


@fault("recreated-claim", 2)
def claim_recreated(stage: Stage) -> None:
    """A claim is removed by force and made anew under its name while its engine still runs."""
    claim = stage.pick(stage.claims())
    if claim is None:
        return
    unheld: Object = {"metadata": {"finalizers": []}}
    if stage.cluster.store.objects[MODEL_CLAIMS.plural, NAMESPACE, claim]["metadata"].get("finalizers"):
        stage.cluster.store.change(MODEL_CLAIMS, (NAMESPACE, claim), unheld)
    stage.cluster.delete_claim(claim)
    stage.tell(f"{claim} is removed by force")
    apply(stage, claim)
