"""Engines started, routed, stopped and moved at the wrong time."""

from planting import Fault

DECIDE = "modelclaim.decide"
HEALTH = "modelclaim.health"
RETIRE = "modelclaim.retire"
ROUTES = "modelclaim.routes"
STARTING = "modelclaim.starting"
ADMITTING = "modelclaim.admitting"

FAULTS = (
    Fault(
        "route before limit",
        HEALTH,
        "if record in (0, in_force) and not is_undivided:",
        "if True:",
    ),
    Fault(
        "an engine that is not ready is routed",
        HEALTH,
        "if not engine.ready or engine.port == 0 or",
        "if engine.port == 0 or",
    ),
    Fault(
        "an engine above its record keeps its route",
        HEALTH,
        "if record == 0 or 0 <= in_force <= record:",
        "if True:",
        seeds=40,
    ),
    Fault(
        "an engine that failed for good is waited for",
        HEALTH,
        "if engine.phase is EnginePhase.FAILED:",
        "if False:",
    ),
    Fault(
        "a deleted claim's engine is not drained",
        RETIRE,
        "if may_serve and not _may_stop(claim, sitting, pod, since_s, draft):",
        "if False:",
    ),
    Fault(
        "an engine with requests in it is stopped after five seconds",
        RETIRE,
        "draft.now.monotonic_s - since_s >= DRAIN_S and _is_idle(sitting, pod)",
        "draft.now.monotonic_s - since_s >= DRAIN_S",
    ),
    Fault(
        "an idle engine is stopped as soon as its route is gone",
        RETIRE,
        "draft.now.monotonic_s - since_s >= DRAIN_S and _is_idle(sitting, pod)",
        "_is_idle(sitting, pod)",
    ),
    Fault(
        "the finalizer stays for ever",
        RETIRE,
        "    if all(stopped):",
        "    if False:",
    ),
    Fault(
        "an engine is started while its record is being written",
        STARTING,
        "if not sitting.is_recorded or claim.is_writing or claim.is_deleting or not draft.is_free(pod):",
        "if claim.is_deleting or not draft.is_free(pod):",
    ),
    Fault(
        "a claim is recorded without its finalizer",
        ADMITTING,
        "    if not claim.has_finalizer:\n        # Before",
        "    if False:\n        # Before",
    ),
    Fault(
        "an instance on a Pod that is gone stays",
        DECIDE,
        "            draft.remember_claim(claim, wait=None, refusal=None)  # it lost its engine, and starts over\n"
        "            continue",
        "            instances.append(before)\n            continue",
    ),
    Fault(
        "the watch counts more than our own write",
        "cluster.overlay",
        "        return written.obj\n",
        "        return seen\n",
    ),
    Fault(
        "routes of claims that are gone stay",
        ROUTES,
        "if key.startswith(names.ROUTE_PREFIX) and key not in wanted and claim not in seated:",
        "if False:",
    ),
    Fault(
        "an engine is stopped once it is idle or its drain is over",
        RETIRE,
        "draft.now.monotonic_s - since_s >= DRAIN_S and _is_idle(sitting, pod)",
        "draft.now.monotonic_s - since_s >= DRAIN_S or _is_idle(sitting, pod)",
    ),
    Fault(
        "a drain takes four seconds",
        RETIRE,
        "DRAIN_S = 5.0\n",
        "DRAIN_S = 4.0\n",
    ),
    Fault(
        "an engine with requests in it is stopped after half a minute",
        RETIRE,
        "LONGEST_DRAIN_S = 90.0",
        "LONGEST_DRAIN_S = 30.0",
    ),
    Fault(
        "the finalizer goes before the engine was asked to stop",
        RETIRE,
        "    if all(stopped):",
        "    if stopped or True:",
    ),
    Fault(
        "an engine is stopped while it is on the route",
        RETIRE,
        "        return False  # the route goes first, and is seen gone before the engine is touched",
        "        pass",
        first=52,  # mostly the route is gone anyway when its engine has drained
    ),
    Fault(
        "engines that nobody answers for run on",
        RETIRE,
        '        if due.get(uid, float("inf")) <= now_s and draft.is_free(pod):',
        "        if False:",
    ),
    Fault(
        "no fence: a runtime does what a former leader sends",
        "runtime.fence",
        "if term is not None and self._highest is not None and term < self._highest:",
        "if False:",
    ),
)
