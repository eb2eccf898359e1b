"""The models that Pods, claims and adapters make together. Pure: ``watching`` feeds it, ``View.models`` is its result.

A change of one object makes its own models anew and no others, and a model about which nothing changed stays the very
same object: counts and tables are kept by it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeAlias, TypeVar

from aibrix_operator.gateway import standing, view
from aibrix_operator.gateway.facts import AdapterFacts, Binding, ClaimFacts, PodFacts
from aibrix_operator.gateway.profiles import ModelConfig
from aibrix_operator.gateway.view import Endpoint, Model, Standing

Key: TypeAlias = tuple[str, str]
"""(namespace, name)"""
ParseConfig: TypeAlias = Callable[[str], ModelConfig | None]
"""Reads a config annotation; None for one that is not valid. Equal texts give the same value."""
DEFAULT_ENGINE = "vllm"


@dataclass(frozen=True, slots=True)
class ModelChange:
    """One model before and after; None where there was or is none."""

    name: str
    old: Model | None
    new: Model | None


class _Named(Protocol):
    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...


FactsT = TypeVar("FactsT", bound=_Named)


class _Index(Generic[FactsT]):
    """Objects by key, and by the model names that they speak of."""

    def __init__(self, names_of: Callable[[FactsT], Iterable[str]]) -> None:
        self.objects: dict[Key, FactsT] = {}
        self._names_of = names_of
        self._keys: dict[str, set[Key]] = {}

    def put(self, key: Key, facts: FactsT | None) -> set[str]:
        """Replace the object; the names that it spoke of before, or does now."""
        before = self.objects.pop(key, None)
        old = set(self._names_of(before)) if before is not None else set()
        new = set(self._names_of(facts)) if facts is not None else set()
        for name in old - new:
            keys = self._keys[name]
            keys.discard(key)
            if not keys:
                del self._keys[name]
        for name in new - old:
            self._keys.setdefault(name, set()).add(key)
        if facts is not None:
            self.objects[key] = facts
        return old | new

    def of(self, name: str) -> list[FactsT]:
        """The objects that speak of the model, by namespace and name."""
        return [self.objects[key] for key in sorted(self._keys.get(name, ()))]


class Catalogue:
    """What was read of the cluster. ``models`` is changed by ``refresh`` only."""

    def __init__(self, models: dict[str, Model], parse_config: ParseConfig) -> None:
        self._models = models
        self._parse_config = parse_config
        self._pods: _Index[PodFacts] = _Index(PodFacts.model_names)
        self._bound: _Index[PodFacts] = _Index(_claims_on)
        self._claims: _Index[ClaimFacts] = _Index(lambda claim: (claim.model,))
        self._adapters: _Index[AdapterFacts] = _Index(lambda adapter: (adapter.name,))
        self._adapters_on: _Index[AdapterFacts] = _Index(lambda adapter: map(_place(adapter), adapter.pods))
        self._stale: set[str] = set()
        self._serving: dict[str, frozenset[str]] = {}
        """Model → incarnations of all engines that serve it, whether their Pods are ready or not."""
        self._ended: list[tuple[str, str]] = []

    def set_pod(self, key: Key, facts: PodFacts | None) -> None:
        """The Pod is so now; None: it is gone."""
        self._stale |= self._pods.put(key, facts)
        self._bound.put(key, facts)
        # An adapter may have been told of before the Pod that carries it.
        self._stale |= {adapter.name for adapter in self._adapters_on.of("/".join(key))}

    def set_claim(self, key: Key, facts: ClaimFacts | None) -> None:
        """The claim is so now; None: it is gone."""
        self._stale |= self._claims.put(key, facts)
        # A route says which model it serves, and its claim which engine does.
        for pod in self._bound.of("/".join(key)):
            self._stale |= {binding.route.model for binding in pod.bindings if binding.claim == key[1]}

    def set_adapter(self, key: Key, facts: AdapterFacts | None) -> None:
        """The adapter is so now; None: it is gone."""
        self._stale |= self._adapters.put(key, facts)
        self._adapters_on.put(key, facts)

    def refresh(self) -> list[ModelChange]:
        """Make the models anew that something was said about, and tell which are others now."""
        stale, self._stale = self._stale, set()
        changes = []
        for name in sorted(stale):
            old, new = self._models.get(name), self._model(name)
            if new is None:
                self._models.pop(name, None)
            elif old is None or not _is_same(old, new):
                self._models[name] = new
            else:
                continue
            if old is not None or new is not None:
                changes.append(ModelChange(name, old, new))
        return changes

    def take_ended(self) -> list[tuple[str, str]]:
        """(model, incarnation) of engines that serve it no more, since the last call: they sleep, have moved or ended.

        One whose Pod is only not ready is none of them: it has its cache still.
        """
        ended, self._ended = self._ended, []
        return ended

    # --- one model

    def _note_serving(self, name: str, served: Iterable[tuple[PodFacts, int, str]]) -> None:
        now = frozenset(view.incarnation(pod.namespace, pod.name, port, pod.uid) for pod, port, _ in served)
        self._ended += [(name, gone) for gone in sorted(self._serving.pop(name, frozenset()) - now)]
        if now:
            self._serving[name] = now

    def _model(self, name: str) -> Model | None:
        pods, claims, adapters = self._pods.of(name), self._claims.of(name), self._adapters.of(name)
        if not (pods or claims or adapters):
            self._note_serving(name, ())
            return None
        carriers = [pod for adapter in adapters for pod in self._carriers(adapter)]
        served = [*self._served(name, pods), *((pod, port, pod.engine) for pod in carriers for port in pod.ports)]
        self._note_serving(name, served)
        before = self._models.get(name)
        known = {endpoint.address: endpoint for endpoint in before.endpoints} if before is not None else {}
        made = (_endpoint(name, *each, known) for each in served if each[0].is_routable)
        endpoints = {endpoint.key: endpoint for endpoint in made}
        texts = [claim.config for claim in claims if claim.config]
        texts += [pod.config for pod in (*pods, *carriers) if pod.config]
        is_known_otherwise = bool(served or adapters)
        return Model(
            name=name,
            endpoints=tuple(endpoints[key] for key in sorted(endpoints)),
            engine=next((engine for _, _, engine in served if engine), self._engine_of(claims)),
            config=next((config for config in map(self._parse_config, texts) if config is not None), None),
            standing=None if endpoints else _standing(name, pods, claims, is_known_otherwise),
            base=next((adapter.base for adapter in adapters if adapter.base), ""),
        )

    def _served(self, name: str, pods: Iterable[PodFacts]) -> Iterator[tuple[PodFacts, int, str]]:
        """(Pod, port, engine) of all engines that serve the model, whether their Pods are ready or not."""
        for pod in pods:
            if pod.model == name:
                for port in pod.ports:
                    yield pod, port, pod.engine
            for binding in pod.bindings:
                if binding.route.port and binding.route.model == name:
                    claim = self._claims.objects.get((pod.namespace, binding.claim))
                    yield pod, binding.route.port, (claim.engine if claim is not None else "") or pod.engine

    def _carriers(self, adapter: AdapterFacts) -> Iterator[PodFacts]:
        for name in adapter.pods:
            pod = self._pods.objects.get((adapter.namespace, name))
            if pod is not None:
                yield pod

    def _engine_of(self, claims: Iterable[ClaimFacts]) -> str:
        return next((claim.engine for claim in claims if claim.engine), DEFAULT_ENGINE)


def _claims_on(pod: PodFacts) -> Iterator[str]:
    return (f"{pod.namespace}/{binding.claim}" for binding in pod.bindings)


def _place(adapter: AdapterFacts) -> Callable[[str], str]:
    return lambda pod: f"{adapter.namespace}/{pod}"


def _bindings(pod: PodFacts, name: str) -> Iterator[Binding]:
    return (binding for binding in pod.bindings if binding.route.model == name)


def _standing(
    name: str, pods: Iterable[PodFacts], claims: Iterable[ClaimFacts], is_known_otherwise: bool
) -> Standing | None:
    """Of a model without a routable engine, in this order:

    1. a route that is active, on a Pod that is not ready: None, its Pods are what is wrong;
    2. another route, of the lowest Pod by namespace and name: an engine that sleeps, starts or has failed;
    3. Pods or adapters that carry its name: None again;
    4. the first claim that wants to serve it.

    The route of a Pod that is being deleted says nothing of what comes: its engine ends.
    """
    bound = [(pod, binding) for pod in pods for binding in _bindings(pod, name)]
    if any(binding.route.port for _, binding in bound):
        return None
    for pod, binding in bound:
        if not pod.is_terminating:
            return standing.of_binding(pod, binding)
    if is_known_otherwise:
        return None
    return next(map(standing.of_claim, claims), None)


def _endpoint(name: str, pod: PodFacts, port: int, engine: str, known: dict[str, Endpoint]) -> Endpoint:
    """The endpoint, as the very object that it was before when nothing about it is different.

    Looked up before it is made: one Pod's event must not make a thousand others' endpoints anew.
    """
    address = f"[{pod.ip}]:{port}" if ":" in pod.ip else f"{pod.ip}:{port}"
    engine = engine or DEFAULT_ENGINE
    before = known.get(address)
    if before is not None and (
        (before.uid, before.pod, before.namespace, before.engine, before.ready_since_s, before.labels)
        == (pod.uid, pod.name, pod.namespace, engine, pod.ready_since_s, pod.labels)
    ):
        return before
    return Endpoint(name, pod.namespace, pod.name, pod.uid, address, engine, pod.labels, pod.ready_since_s)


def _is_same(old: Model, new: Model) -> bool:
    """Whether nothing about the model changed. Endpoints are equal only to themselves."""
    return (old.endpoints, old.engine, old.config, old.standing, old.base) == (
        (new.endpoints, new.engine, new.config, new.standing, new.base)
    )
