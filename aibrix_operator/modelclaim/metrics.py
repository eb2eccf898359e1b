"""The controller's metrics, under AIBrix's names. Gauges are read off the caches when somebody scrapes: a pass pays
nothing for them, and they vanish with their claim."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from aibrix_operator.api.conditions import find_condition
from aibrix_operator.api.modelclaim import ClaimPhase, ConditionType
from aibrix_operator.modelclaim import known
from aibrix_operator.modelclaim.card_metrics import PREFIX, CardGauges
from aibrix_operator.modelclaim.parse import UnreadableClaim, parse_time
from aibrix_operator.modelclaim.snapshot import Claim, Finished
from aibrix_operator.modelclaim.steps import Activate, Sleep, Wake
from aibrix_operator.modelclaim.world import World
from aibrix_operator.runtime_api.outcome import Done, NotSent

_LABELS = ("namespace", "model")


class Metrics:
    """All metrics of one controller, in a registry of their own."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.registry = CollectorRegistry()
        self.registry.register(_Gauges(world))
        self.registry.register(CardGauges(world))
        self.activations = Counter(
            f"{PREFIX}_activation", "Starts asked of runtimes.", (*_LABELS, "result"), registry=self.registry
        )
        self.actions = Counter(
            f"{PREFIX}_pool_policy_actions",
            "Engines put to sleep or woken.",
            ("namespace", "pool", "action", "result", "reason"),
            registry=self.registry,
        )
        self.pass_seconds = Histogram(
            f"{PREFIX}_pass_duration_seconds",
            "One pass: observe, decide, act; over the whole namespace or some of its Pods.",
            ("scope",),
            registry=self.registry,
        )
        self.violations = Counter(
            f"{PREFIX}_ledger_violations",
            "Broken laws of the ledger, seen in a snapshot; must stay 0.",
            ("namespace",),
            registry=self.registry,
        )

    def step_ended(self, namespace: str, finished: Finished) -> None:
        """Count a runtime step. A call that was never sent, because the runtime is left alone, is no failed one."""
        if isinstance(finished.result, NotSent) and finished.result.left_alone:
            return
        is_done = isinstance(finished.result, Done)
        match finished.step:
            case Activate(request=request):
                result = "success" if is_done else "failed"
                self.activations.labels(namespace, request.model_name, result).inc()
            case Sleep(pod=pod):
                self._acted(namespace, pod.name, "sleep", is_done)
            case Wake(pod=pod):
                self._acted(namespace, pod.name, "wake", is_done)
            case _:
                pass

    def _acted(self, namespace: str, pod: str, action: str, is_done: bool) -> None:
        how = ("applied", "applied") if is_done else ("failed", "runtime_error")
        self.actions.labels(namespace, known.pool_name(self._world, namespace, pod), action, *how).inc()


class _Gauges(Collector):
    def __init__(self, world: World) -> None:
        self._world = world

    def describe(self) -> Iterable[Metric]:
        """Nothing to collect before the caches are filled, and so nothing at registration."""
        return ()

    def collect(self) -> Iterator[Metric]:
        desired, ready, activating, waiting = (
            GaugeMetricFamily(f"{PREFIX}_{name}", text, labels=_LABELS)
            for name, text in (
                ("desired_replicas", "Instances that the claim wants."),
                ("ready_replicas", "Instances that serve."),
                ("activating", "1 while an engine of the claim starts."),
                ("no_ready_duration_seconds", "Seconds since the claim last served, or was created; 0 while it does."),
            )
        )
        for claim in self._claims():
            labels = (claim.namespace, claim.model)
            desired.add_metric(labels, claim.status.desired_replicas)
            ready.add_metric(labels, claim.status.ready_replicas)
            activating.add_metric(labels, float(claim.status.phase is ClaimPhase.ACTIVATING))
            waiting.add_metric(labels, self._no_ready_s(claim))
        yield from (desired, ready, activating, waiting)
        valid = GaugeMetricFamily(
            f"{PREFIX}_pool_policy_valid",
            "0 while the pool's policy cannot be read.",
            labels=("namespace", "deployment"),
        )
        for slim in self._world.deployments.values():
            pool = self._world.pool_of(slim)
            if pool.annotation:
                valid.add_metric((pool.namespace, pool.deployment), float(not pool.error_class))
        yield valid
        dropped = GaugeMetricFamily(
            f"{PREFIX}_events_dropped", "Events that were not written, to spare the API server."
        )
        dropped.add_metric((), self._world.recorder.dropped)
        yield dropped

    def _claims(self) -> Iterator[Claim]:
        for body in self._world.claims.values():
            try:
                yield self._world.claim_of(body)
            except UnreadableClaim:
                continue

    def _no_ready_s(self, claim: Claim) -> float:
        ready = find_condition(claim.status.conditions, ConditionType.READY)
        if ready is not None and ready.status == "True":
            return 0.0
        since = claim.created_at if ready is None else parse_time(ready.last_transition_time) or claim.created_at
        return max(0.0, (self._world.wall() - since).total_seconds())
