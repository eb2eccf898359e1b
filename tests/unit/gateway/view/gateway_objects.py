"""Pods, claims and adapters as the API server has them, and the models that they make."""

import asyncio
import itertools
import json

from aibrix_operator.gateway.facts import parse_adapter, parse_claim, parse_pod, says_something
from aibrix_operator.gateway.loads import Loads
from aibrix_operator.gateway.modeling import Catalogue
from aibrix_operator.gateway.profiles import ModelConfig
from aibrix_operator.gateway.view import View

ROUTE = "route.claim.model.aibrix.ai/"
OLD_ROUTE = "modelclaim.aibrix.ai/"
WAKE = "wake.modelclaim.aibrix.ai/"
NAME = "model.aibrix.ai/name"
CONFIG = "model.aibrix.ai/config"

_versions = itertools.count(1)


async def until(is_so):
    """Return once ``is_so()``; TimeoutError when that takes 20 s."""
    async with asyncio.timeout(20):
        while not is_so():  # noqa: ASYNC110  # what is waited for has no event
            await asyncio.sleep(0.001)


def pod(name="p0", *, namespace="default", labels=None, annotations=None, ip="10.0.0.1", ready=True, **more):
    """A Pod; ``uid``, ``version``, ``env`` and ``deleting`` by name."""
    condition = {"type": "Ready", "status": "True" if ready else "False", "lastTransitionTime": "2026-01-01T00:00:10Z"}
    metadata = {
        "name": name,
        "namespace": namespace,
        "uid": more.get("uid", f"uid-{namespace}-{name}"),
        "resourceVersion": more.get("version", str(next(_versions))),
        "labels": labels or {},
        "annotations": annotations or {},
    }
    if more.get("deleting"):
        metadata["deletionTimestamp"] = "2026-01-01T00:01:00Z"
    env = [{"name": key, "value": value} for key, value in more.get("env", {}).items()]
    return {
        "metadata": metadata,
        "spec": {"containers": [{"name": "engine", "env": env}]},
        "status": {"podIP": ip, "conditions": [{"type": "Initialized", "status": "True"}, condition]},
    }


def route(model, port=0, state=None, reason="", wake_by_request=True):
    """The text of a route annotation."""
    state = state or ("active" if port else "sleeping")
    value = {"model": model, "port": port, "state": state, "wakeByRequest": wake_by_request}
    return json.dumps(value | ({"reason": reason} if reason else {}))


def warm(name="warm-0", routes=None, *, prefix=ROUTE, asked=(), **more):
    """A warm Pod with routes (claim → text)."""
    annotations = {prefix + claim: text for claim, text in (routes or {}).items()}
    annotations |= {WAKE + claim: "2026-01-01T00:00:00Z" for claim in asked}
    return pod(name, annotations=annotations | more.pop("annotations", {}), **more)


def claim(name="c", *, model=None, namespace="default", phase=None, config=None, conditions=(), **more):
    """A claim; conditions are (type, status, reason)."""
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "resourceVersion": str(next(_versions))}
    metadata |= {"annotations": {CONFIG: config}} if config else {}
    metadata |= {"deletionTimestamp": "2026-01-01T00:01:00Z"} if more.get("deleting") else {}
    spec = {"engine": more.get("engine", "vllm")} | ({"modelName": model} if model else {})
    told = [{"type": type_, "status": status, "reason": reason} for type_, status, reason in conditions]
    status = {"conditions": told} | ({"phase": phase} if phase else {})
    return {"metadata": metadata, "spec": spec, "status": status}


def adapter(name, *pods, base="", namespace="default", deleting=False):
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "resourceVersion": str(next(_versions))}
    metadata |= {"deletionTimestamp": "2026-01-01T00:01:00Z"} if deleting else {}
    return {"metadata": metadata, "spec": {"baseModel": base}, "status": {"instances": list(pods)}}


def parse_config(text):
    """Stands for the parser of profiles: a JSON object with ``lock``."""
    try:
        return ModelConfig(locked_strategy=json.loads(text)["lock"])
    except (ValueError, KeyError):
        return None


class Cluster:
    """A catalogue that is fed with whole objects."""

    def __init__(self):
        self.view = View(Loads())
        self._catalogue = Catalogue(self.view.models, parse_config)
        self.changes = []

    def has(self, *objects):
        """These are so now; which models are others, by name."""
        for body in objects:
            key = (body["metadata"]["namespace"], body["metadata"]["name"])
            if "containers" in body["spec"]:
                self._catalogue.set_pod(key, parse_pod(body) if says_something(body) else None)
            elif "baseModel" in body["spec"]:
                self._catalogue.set_adapter(key, parse_adapter(body))
            else:
                self._catalogue.set_claim(key, parse_claim(body))
        return self._refresh()

    def lost(self, *, pod=None, claim=None, adapter=None):
        """The object of that name is gone."""
        if pod:
            self._catalogue.set_pod(("default", pod), None)
        if claim:
            self._catalogue.set_claim(("default", claim), None)
        if adapter:
            self._catalogue.set_adapter(("default", adapter), None)
        return self._refresh()

    def _refresh(self):
        self.changes = self._catalogue.refresh()
        return [change.name for change in self.changes]

    def __getitem__(self, name):
        return self.view.models[name]

    def __contains__(self, name):
        return name in self.view.models

    def addresses(self, name):
        return [endpoint.address for endpoint in self.view.models[name].endpoints]

    def standing(self, name):
        """(state, reason, seconds) of a model without an engine; None when none is told."""
        found = self.view.models[name].standing
        return None if found is None else (found.state, found.reason, found.retry_after_s)
