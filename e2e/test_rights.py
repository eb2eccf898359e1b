"""Operator and gateway run with the chart's rights: a claim's whole life uses every one of them, and is denied none."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from datetime import UTC, datetime

import pytest

from aibrix_operator import roles
from aibrix_operator.cluster.grant import Grant
from aibrix_operator.gateway import grants as gateway_grants
from aibrix_operator.modelclaim import grants as claim_grants
from aibrix_operator.operator.grants import GRANTS, PROCESS
from aibrix_operator.sandbox import rights_audit, up
from aibrix_operator.sandbox.rights_audit import Used
from aibrix_operator.sandbox.state import Sandbox
from e2e.api import ApiServer, eventually
from e2e.gateway import gateways_of
from e2e.pool import AWAKE, SMALL_CARD, make_pool


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Used]:
    """What each component asked of the API server of a sandbox of its own, in which a claim lived."""
    folder, outer = tmp_path_factory.mktemp("rights"), rights_audit.folder()
    (folder / "profiles.json").write_text(json.dumps({"default": {"boot_seconds": 0.3, "footprint_bytes": AWAKE}}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIBRIX_SIM_PROFILES", str(folder / "profiles.json"))
        patch.setenv("AIBRIX_AUDIT_DIR", str(folder / "audit"))
        sandbox = up.up(f"e2e-rights-{os.getpid()}", up.Options(cards=(SMALL_CARD,), gateways=1, with_pool=False))
        try:
            with contextlib.closing(ApiServer(sandbox.kubeconfig)) as api:
                _live(sandbox, api)
        finally:
            up.down(sandbox.name)
    (log,) = (folder / "audit").iterdir()
    if outer is not None:
        outer.mkdir(parents=True, exist_ok=True)
        shutil.copy(log, outer)
    return rights_audit.read(log.read_bytes().splitlines(), {name: name for name in GRANTS})


def _live(sandbox: Sandbox, api: ApiServer) -> None:
    """A claim is placed, put to sleep, woken by a request and deleted; meanwhile the same Event is told twice."""
    pool = make_pool(sandbox, api, "rights", namespace="rights")
    pool.wait_ready(1)
    pool.apply("life")
    pool.wait_active("life", within_s=60.0)
    deployment = f"{pool.name}-{SMALL_CARD.lower()}"
    for times in (1, 2):
        pool.set_policy(sleepAfterSeconds=0)
        pool.wait_told(deployment, "InvalidPoolPolicy", times)
        pool.set_policy(sleepAfterSeconds=3600)
        pool.wait_told(deployment, "PoolPolicyValid", times)
    asleep = {"model_name": "life", "level": 1, "operation_id": f"by-hand/{datetime.now(UTC).isoformat()}"}
    eventually("it takes the call", lambda: pool.pod.post("sleep", **asleep).status == 200)
    pool.wait_asleep("life")
    (gateway,) = gateways_of(sandbox)
    eventually("it is woken and answers", lambda: gateway.chat("life").status == 200, 60.0)
    pool.delete("life")
    eventually("it is gone", lambda: pool.is_gone("life"), 60.0)


@pytest.mark.parametrize(
    ("component", "needed"),
    [("operator", (*PROCESS, *claim_grants.GRANTS)), ("gateway", gateway_grants.GRANTS)],
    ids=["operator", "gateway"],
)
def test_a_claims_life_uses_all_rights_and_is_denied_none(
    used: dict[str, Used], component: str, needed: tuple[Grant, ...]
):
    found = used[component]
    assert not found.denied
    assert rights_audit.unused(found, needed) == []
    assert found.allowed.keys() <= rights_audit.granted(roles.given(GRANTS[component])), (
        "allowed by somebody else's role"
    )
