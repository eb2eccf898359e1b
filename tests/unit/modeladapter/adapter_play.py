"""One adapter, some Pods and their engines, played pass by pass: the real decision over a world that does what it says.

Nothing here waits: ``settle`` runs passes until one plans nothing, ``later`` moves the clocks, ``listen`` asks engines.
"""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from aibrix_operator.api import names
from aibrix_operator.api.adapter_policy import Policy
from aibrix_operator.api.conditions import find_condition
from aibrix_operator.api.modeladapter import ModelAdapterSpec, ModelAdapterStatus
from aibrix_operator.modeladapter import steps as did
from aibrix_operator.modeladapter.decide import decide
from aibrix_operator.modeladapter.memory import NOTICE_S, Memory
from aibrix_operator.modeladapter.snapshot import (
    Adapter,
    Called,
    ListedModel,
    Listing,
    PodFacts,
    RouteCalled,
    Snapshot,
    Target,
    Verdict,
    Way,
)

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
URL = "huggingface://org/sql"
MOST_PASSES = 60


class Engine:
    """What one Pod's engine has, and how it answers."""

    def __init__(self):
        self.models = {}
        """Name → whether it is a base model."""
        self.load_verdicts = []
        """Scripted ends of coming loads: (verdict, message); then they succeed."""
        self.refuses = ""
        """Every load is refused with these words."""
        self.unload_verdict = Verdict.DONE
        self.is_silent = ""
        """Lists fail with these words."""
        self.loads = 0
        self.unloads = 0

    def load(self, name):
        self.loads += 1
        if self.load_verdicts:
            return self.load_verdicts.pop(0)
        if self.refuses:
            return Verdict.REFUSED, self.refuses
        self.models[name] = False
        return Verdict.DONE, "Success"

    def unload(self, name):
        self.unloads += 1
        if self.unload_verdict is Verdict.DONE:
            self.models.pop(name, None)
        return self.unload_verdict, str(self.unload_verdict)


class Play:
    """The world. Attributes may be changed between passes, as users and kubelets do."""

    def __init__(self, pods=("b-1", "b-2"), *, replicas=None, policy=Policy.LEAST_ADAPTERS, url=URL, labels=None):
        self.adapter = Adapter(
            namespace="default",
            name="sql",
            uid="u-sql",
            generation=1,
            is_deleting=False,
            has_finalizer=False,
            labels=labels or {},
            annotations={},
            spec=ModelAdapterSpec.model_validate({"podSelector": {}, "artifactURL": url, "replicas": replicas}),
            spec_error="",
            status=ModelAdapterStatus(),
        )
        self.policy = policy
        self.now_s = 100.0
        self.memory = Memory()
        self.engines = {}
        self.pods = {}
        self.listings = {}
        for name in pods:
            self.add_pod(name)
        self.has_service = False
        self.slices = {}
        self.refusal = None
        self.name_holder = ""
        self.called, self.route_called = [], None
        self.route_error = ""
        self.routes = []
        self.is_gone = False
        self.holds_calls = False
        """Loads and unloads stay under way until ``answer``."""
        self.under_way = []
        self.done = []
        """Every step, oldest first."""
        self.look_after_s = None
        self.writes = []
        """Names of the steps that write to the API server, Events apart."""

    @property
    def now(self):
        return EPOCH + timedelta(seconds=self.now_s)

    def add_pod(self, name, *, ready_for_s=60.0, port=8000):
        uid = f"u-{name}-{len(self.engines)}"
        target = Target(name, uid, f"10.0.0.{len(self.engines) + 1}", port, Way.DIRECT, "vllm", port)
        ready = EPOCH + timedelta(seconds=getattr(self, "now_s", 100.0) - ready_for_s)
        self.pods[name] = PodFacts(target, ready, ready, is_terminating=False, is_selected=True)
        self.engines[name] = Engine()
        self.listings.pop(name, None)

    def change_pod(self, name, **facts):
        self.pods[name] = replace(self.pods[name], **facts)

    def remove_pod(self, name):
        del self.pods[name], self.engines[name]
        self.listings.pop(name, None)

    def change_spec(self, **fields):
        spec = self.adapter.spec.model_copy(update=fields)
        self.adapter = replace(self.adapter, spec=spec, generation=self.adapter.generation + 1)

    def restart_operator(self):
        self.memory, self.called, self.listings, self.under_way = Memory(), [], {}, []

    # --- looking

    @property
    def status(self):
        return self.adapter.status

    @property
    def phase(self):
        return str(self.status.phase)

    def condition(self, type_):
        """(status, reason) of a condition; None without it."""
        found = find_condition(self.status.conditions, type_)
        return None if found is None else (str(found.status), found.reason)

    def message(self, type_):
        return find_condition(self.status.conditions, type_).message

    def events(self):
        return [step.reason for step in self.done if isinstance(step, did.Tell)]

    def holding(self):
        """Pods whose engines have the adapter."""
        return {name for name, engine in self.engines.items() if "sql" in engine.models}

    # --- time

    def listen(self):
        """Every engine is asked now."""
        self.now_s += 0.001
        for name, engine in self.engines.items():
            models = {each: ListedModel(is_base) for each, is_base in engine.models.items()}
            self.listings[name] = Listing(self.now_s, {} if engine.is_silent else models, engine.is_silent)
        self.now_s += 0.001

    def later(self, seconds):
        """Time passes; engines are asked, and passes run until nothing is planned."""
        self.now_s += seconds
        self.listen()
        return self.settle()

    def settle(self):
        """Run passes until one plans nothing, now and once gateways have had notice."""
        for _ in range(MOST_PASSES):
            if self.turn():
                continue
            if self.look_after_s is None or self.look_after_s > NOTICE_S:
                return self
            self.now_s += self.look_after_s
        raise AssertionError(f"still planning after {MOST_PASSES} passes: {self.done[-6:]}")

    def start(self):
        """The first passes, engines asked in between."""
        self.settle()
        self.listen()
        return self.settle()

    def turn(self):
        """One pass; its steps."""
        plan, self.memory = decide(self._snapshot(), self.memory, self.now, self.policy)
        self.called, self.route_called = [], None
        self.look_after_s = plan.look_after_s
        assert plan.look_after_s is None or plan.look_after_s > 0, plan
        self.now_s += 0.01
        for step in plan.steps:
            self.done.append(step)
            self._do(step)
        return [step for step in plan.steps if not isinstance(step, did.Tell)]

    def _snapshot(self):
        return Snapshot(
            adapter=self.adapter,
            pods=[replace(pod, listing=self.listings.get(name)) for name, pod in sorted(self.pods.items())],
            has_service=self.has_service,
            slices=self.slices,
            refusal=self.refusal,
            name_holder=self.name_holder,
            called=tuple(self.called),
            in_flight=frozenset(step.target.uid for step in self.under_way),
            route_called=self.route_called,
            now_s=self.now_s,
        )

    # --- doing

    def _do(self, step):
        match step:
            case did.Tell():
                return
            case did.Load() | did.Unload():
                assert step.target.uid not in {each.target.uid for each in self.under_way}, f"{step} twice"
                self.under_way.append(step)
                if not self.holds_calls:
                    self.answer()
                return
            case did.MakeRoute() | did.RemoveRoute():
                is_made = isinstance(step, did.MakeRoute)
                if not self.route_error:
                    self.routes = ["sql-router"] if is_made else []
                self.route_called = RouteCalled(is_made, self.route_error, self.now_s)
                return
        self.writes.append(type(step).__name__)
        match step:
            case did.AddFinalizer():
                self.adapter = replace(self.adapter, has_finalizer=True)
            case did.RemoveFinalizer():
                assert self.adapter.is_deleting
                self.is_gone = True
                self.adapter = replace(self.adapter, has_finalizer=False)
            case did.Publish():
                self.adapter = replace(self.adapter, status=step.status)
            case did.Annotate():
                merged = {**self.adapter.annotations, **step.annotations}
                kept = {key: value for key, value in merged.items() if value is not None}
                self.adapter = replace(self.adapter, annotations=kept)
            case did.CreateService():
                assert not self.has_service
                self.has_service = True
            case did.WriteSlice():
                self.slices = {**self.slices, step.port: frozenset(step.addresses)}

    def answer(self):
        """The calls under way end."""
        for step in self.under_way:
            loads = isinstance(step, did.Load)
            engine = self.engines.get(step.target.pod)
            verdict, message = Verdict.NOT_SENT, "nobody is there"
            if engine is not None and self.pods[step.target.pod].target.uid == step.target.uid:
                verdict, message = engine.load("sql") if loads else engine.unload("sql")
            url = step.artifact_url if loads else ""
            self.called.append(Called(step.target.uid, loads, url, verdict, message, self.now_s, self.now))
        self.under_way = []

    def delete(self):
        self.adapter = replace(self.adapter, is_deleting=True)
        return self.settle()

    def retries(self):
        """The retry annotations, without their prefix."""
        return {
            key.removeprefix(names.ADAPTER_PREFIX): value
            for key, value in self.adapter.annotations.items()
            if key.startswith((names.RETRY_COUNT_PREFIX, names.LAST_RETRY_PREFIX))
        }
