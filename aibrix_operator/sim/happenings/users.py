"""What users wish for: claims come, go and change."""

from __future__ import annotations

from aibrix_operator.sim.happening import Stage, event

CLAIMS = tuple(f"claim-{n}" for n in range(8))
SGLANG_SHARE = 0.15


@event("apply", 12)
def claim_applied(stage: Stage) -> None:
    """A user applies a claim."""
    name = stage.pick([c for c in CLAIMS if c not in stage.claims()])
    if name is not None:
        apply(stage, name)


def apply(stage: Stage, name: str) -> None:
    """Apply a claim of random size."""
    footprint, floor = stage.chance.randint(2, 30), stage.chance.randint(1, 12)
    engine = "sglang" if stage.chance.random() < SGLANG_SHARE else "vllm"
    stage.tell(f"{name} is applied, {footprint}+{floor} GiB, {engine}")
    stage.cluster.apply(name, f"{footprint}Gi", f"{floor}Gi", engine=engine)


@event("delete", 5)
def claim_deleted(stage: Stage) -> None:
    """A user deletes a claim."""
    name = stage.pick(stage.claims())
    if name is not None:
        stage.tell(f"{name} is deleted")
        stage.cluster.delete_claim(name)


@event("patch", 4)
def claim_patched(stage: Stage) -> None:
    """A user declares other figures for a claim, some of them unusable."""
    name = stage.pick(stage.claims())
    if name is not None:
        declare(stage, name, is_wrong=stage.chance.random() < 0.15)


def declare(stage: Stage, name: str, *, is_wrong: bool = False) -> None:
    """Give a claim other figures."""
    footprint = "0" if is_wrong else f"{stage.chance.randint(2, 24)}Gi"
    floor = f"{stage.chance.randint(1, 10)}Gi"
    stage.tell(f"{name} is declared {footprint}+{floor}")
    stage.cluster.patch_claim(name, {"spec": {"perGPU": {"maximumFootprint": footprint, "kvFloor": floor}}})
