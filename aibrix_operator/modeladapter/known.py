"""What the controller knows of all adapters and Pods together, indexed as passes ask for it. Fed by the caches."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from aibrix_operator.api import names
from aibrix_operator.cluster.resource import Key, Object, key_of
from aibrix_operator.cluster.watch import Change
from aibrix_operator.modeladapter import parse
from aibrix_operator.modeladapter.routes import served_name
from aibrix_operator.modeladapter.snapshot import Adapter

CHOICE_LASTS_S = 30.0
"""A choice counts for so long before the annotation that tells of it has been seen."""


class Known:
    """Adapters by namespace and by name, Pods by namespace."""

    def __init__(self) -> None:
        self._bodies: dict[Key, Object] = {}
        self._parsed: dict[str, tuple[Object, Adapter]] = {}
        """UID → the object that was parsed, and what it came to."""
        self._by_namespace: dict[str, set[Key]] = defaultdict(set)
        self._by_name: dict[str, set[Key]] = defaultdict(set)
        self._pods: dict[str, dict[str, Object]] = defaultdict(dict)
        self._choices: dict[Key, tuple[tuple[str, ...], datetime]] = {}

    # --- being told

    def adapter_changed(self, change: Change, old: Object | None, new: Object | None) -> None:
        """An ``OnEvent``."""
        obj = new if new is not None else old
        if obj is None:
            return
        key = key_of(obj)
        if new is not None:
            self._bodies[key] = new
            self._by_namespace[key[0]].add(key)
            self._by_name[key[1]].add(key)
            return
        self._bodies.pop(key, None)
        self._choices.pop(key, None)
        self._parsed.pop(obj["metadata"]["uid"], None)
        for index, part in ((self._by_namespace, key[0]), (self._by_name, key[1])):
            index[part].discard(key)
            if not index[part]:
                del index[part]

    def pod_changed(self, change: Change, old: Object | None, new: Object | None) -> None:
        """An ``OnEvent``."""
        obj = new if new is not None else old
        if obj is None:
            return
        namespace, name = key_of(obj)
        if new is not None:
            self._pods[namespace][name] = new
        else:
            self._pods[namespace].pop(name, None)

    def choose(self, key: Key, pods: Sequence[str], now: datetime) -> None:
        """The adapter is to be loaded on these Pods, and nobody can read that yet."""
        self._choices[key] = tuple(pods), now

    def forget_choices(self) -> None:
        """Those of another term."""
        self._choices.clear()

    # --- being asked

    def adapter(self, body: Object) -> Adapter:
        """The object as the decision takes it, each version parsed once."""
        uid = body["metadata"]["uid"]
        known = self._parsed.get(uid)
        if known is None or known[0] is not body:
            known = self._parsed[uid] = body, parse.parse_adapter(body)
        return known[1]

    def pods(self, namespace: str) -> Mapping[str, Object]:
        """Slimmed Pods by name."""
        return self._pods.get(namespace, {})

    def namesakes(self, name: str) -> Sequence[Key]:
        """Adapters of that name, in all namespaces."""
        return sorted(self._by_name.get(name, ()))

    def older_namesake(self, body: Object) -> str:
        """The adapter that has the name instead: of all that are not on their way out the oldest, by time and then by
        namespace. Empty: it is this one."""
        own = _age(body)
        rivals = [
            self._bodies[key]
            for key in self._by_name.get(body["metadata"]["name"], ())
            if key != key_of(body) and "deletionTimestamp" not in self._bodies[key]["metadata"]
        ]
        older = [(*_age(rival), key_of(rival)) for rival in rivals if _age(rival) < own]
        return "/".join(min(older)[-1]) if older else ""

    def adapters_about(self, pod: Key, labels: Sequence[Mapping[str, str]]) -> Iterable[Key]:
        """Adapters that select a Pod with any of these labels, or tell of it."""
        for key in self._by_namespace.get(pod[0], ()):
            adapter = self.adapter(self._bodies[key])
            is_told_of = pod[1] in adapter.status.instances or any(e.pod == pod[1] for e in adapter.status.loaded)
            selects = adapter.spec is not None and any(map(adapter.spec.pod_selector.matches, labels))
            if is_told_of or selects:
                yield key

    def adapters_by_pod(self, adapter: Adapter, now: datetime) -> Mapping[str, int]:
        """Pod → adapters beside this one that are on it or on their way to it."""
        counts: Counter[str] = Counter()
        for key in self._by_namespace.get(adapter.namespace, ()):
            other = self.adapter(self._bodies[key])
            if other.uid == adapter.uid:
                continue
            chosen = other.annotations.get(names.SCHEDULED_PODS_ANNOTATION, "").split(",")
            on_its_way, chosen_at = self._choices.get(key, ((), now))
            if (now - chosen_at).total_seconds() > CHOICE_LASTS_S:
                on_its_way = ()
            counts.update({pod for pod in (*other.status.instances, *chosen, *on_its_way) if pod})
        return counts

    def has_other_routes(self, key: Key) -> bool:
        """Whether another adapter of the namespace asks for a route and is not on its way out."""
        others = (self.adapter(self._bodies[other]) for other in self._by_namespace.get(key[0], ()) if other != key)
        return any(served_name(other) and not other.is_deleting for other in others)


def _age(body: Object) -> tuple[datetime, str]:
    return parse.created_at(body), body["metadata"].get("namespace", "")
