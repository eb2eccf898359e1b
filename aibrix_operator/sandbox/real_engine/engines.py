"""What the demo with real engines applies, and what it expects of the card. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.table import Table

from aibrix_operator.api import names
from aibrix_operator.cluster.resource import Object
from aibrix_operator.sandbox.real_engine.kvcached_standin import hook

CLAIMS = ("tiny-one", "tiny-two")
POOL = "vllm-pool"
POOL_SELECTOR = f"{names.POOL_LABEL}={POOL}"
CARD = "24Gi"
CARD_BYTES = 24 * 1024**3
FOOTPRINT_BYTES = 3 * 1024**3
"""What each engine books on the card beside its KV: about what it really takes of the machine's memory."""
MAXIMUM_FOOTPRINT_BYTES = 4 * 1024**3
KV_FLOOR_BYTES = 1024**3
_IMAGE = "aibrix/runtime:sandbox"

ENGINE_ARGS = {"--dtype": "float32", "--enforce-eager": "", "--max-model-len": "1024"}
"""What vLLM needs on a CPU: no half precision kernels to rely on, nothing to compile, and a short context."""


def engine_environment(python: Path, profiles: Path) -> dict[str, str]:
    """What a warm Pod's sidecar, and through it vLLM, must find in its environment for real engines on a CPU."""
    return {
        "AIBRIX_ENGINE_PYTHON": str(python),
        # vLLM refuses --enable-sleep-mode on a CPU, and the simulated card would make the sidecar pass it.
        "AIBRIX_ENGINE_SLEEP_MODE": "off",
        "AIBRIX_KVCACHED_STANDIN": hook.__file__,
        "AIBRIX_SIM_PROFILES": str(profiles),
        "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB of real KV pool
        # One thread an engine, bound to no core: both engines would bind to the same ones.
        "OMP_NUM_THREADS": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }


def profiles() -> Object:
    """The memory that the engines book on the simulated card."""
    return {"default": {"footprint_bytes": FOOTPRINT_BYTES, "asleep_footprint_bytes": FOOTPRINT_BYTES // 10}}


def pool(python: Path, profiles_file: Path) -> Object:
    """A warm pool of one Pod with one card, whose engines are real."""
    labels = {names.POOL_LABEL: POOL, names.ENABLED_LABEL: "true"}
    container = {
        "name": "runtime",
        "image": _IMAGE,
        "env": [{"name": name, "value": value} for name, value in engine_environment(python, profiles_file).items()],
        "ports": [{"name": "http", "containerPort": names.RUNTIME_PORT}],
        "resources": {"limits": {names.GPU_RESOURCE: "1"}},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": POOL, "labels": labels},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {names.POOL_LABEL: POOL}},
            "strategy": {"type": "Recreate"},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def claim(name: str, model: Path) -> Object:
    """A claim for the model in that folder. Clients call the model by the claim's name."""
    return {
        "apiVersion": f"{names.MODEL_GROUP}/{names.MODEL_VERSION}",
        "kind": "ModelClaim",
        "metadata": {"name": name},
        "spec": {
            "podSelector": {"matchLabels": {names.POOL_LABEL: POOL}},
            "artifactURL": str(model),
            "engine": "vllm",
            "engineConfig": {"args": ENGINE_ARGS},
            "perGPU": {"maximumFootprint": str(MAXIMUM_FOOTPRINT_BYTES), "kvFloor": str(KV_FLOOR_BYTES)},
        },
    }


def describe(claim_object: Mapping[str, Any]) -> str:
    """A claim's state in one line: its phase, and of the conditions that are not True the last one's reason."""
    observed = claim_object.get("status") or {}
    phase = observed.get("phase") or "Pending"
    unmet = [each for each in observed.get("conditions") or [] if each.get("status") != "True"]
    if not unmet or phase == "Active":
        return str(phase)
    return f"{phase} ({unmet[-1].get('reason', '')}: {unmet[-1].get('message', '')})"


def check_division(limits: Mapping[str, int], snapshot: Mapping[str, Any]) -> list[str]:
    """What is wrong with the KV limits (claim → recorded limit) of the engines on one card; empty when all is well."""
    wrong = []
    in_force = {model["model_name"]: model["kv_capacity_bytes"] for model in snapshot["models"]}
    for name, limit in limits.items():
        if limit < KV_FLOOR_BYTES:
            wrong.append(f"{name} has a limit of {limit} bytes, below its floor of {KV_FLOOR_BYTES}")
        if in_force.get(name) != limit:
            wrong.append(f"{name} should have {limit} bytes and {in_force.get(name)} are in force")
    promised = sum(limits.values()) + MAXIMUM_FOOTPRINT_BYTES * len(limits)
    usable = sum(card["hbm_usable_bytes"] for card in snapshot["accelerators"])
    if promised > usable:
        wrong.append(f"{promised} bytes are promised on a card of {usable}")
    if not promised > usable - KV_FLOOR_BYTES:
        wrong.append(f"of {usable} bytes only {promised} are given out")
    return wrong


def table(
    limits: Mapping[str, int],
    models: Mapping[str, Mapping[str, Any]],
    booted: Mapping[str, float],
    memory: Mapping[str, int],
) -> Table:
    """What each engine takes; all mappings are by claim."""
    shown = Table("Claim", "Active after", "Process memory", "On the card", "KV limit", title_justify="left")
    shown.title = f"Two vLLM processes on one simulated card of {_gib(CARD_BYTES)}"
    for name, limit in limits.items():
        on_card = models[name]["hbm_peak_bytes"]
        shown.add_row(name, f"{booted[name]:.0f} s", _gib(memory.get(name, 0)), _gib(on_card), _gib(limit))
    return shown


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / 2**30:.2f} GiB"
