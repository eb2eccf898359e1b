"""What the demo applies, and how it judges the card. No process, no network."""

import json
from pathlib import Path
from typing import Any

import pytest

from aibrix_operator.api import modelclaim, names
from aibrix_operator.sandbox.real_engine import engines
from aibrix_operator.sandbox.real_engine.kvcached_standin import hook
from aibrix_operator.sim import card
from aibrix_operator.sim.engine import profile

GIB = 1024**3
DIVIDED = {"tiny-one": 8 * GIB, "tiny-two": 8 * GIB}


def snapshot(tiny_one: int = 8 * GIB, tiny_two: int = 8 * GIB, usable: int = 24 * GIB) -> dict[str, Any]:
    """A sidecar's view with these limits in force."""
    return {
        "accelerators": [{"id": "GPU-0", "hbm_usable_bytes": usable}],
        "models": [
            {"model_name": "tiny-one", "kv_capacity_bytes": tiny_one},
            {"model_name": "tiny-two", "kv_capacity_bytes": tiny_two},
        ],
    }


def test_the_claims_are_valid_and_select_the_pools_pods() -> None:
    pool = engines.pool(Path("/v/bin/python"), Path("/p.json"))
    for name in engines.CLAIMS:
        claim = modelclaim.ModelClaimSchema.model_validate(engines.claim(name, Path("/models/m")))
        assert claim.spec.pod_selector.matches(pool["spec"]["template"]["metadata"]["labels"])
        assert claim.spec.artifact_url == "/models/m"


def test_the_pools_pod_may_be_given_claims_and_has_one_card() -> None:
    template = engines.pool(Path("/v/bin/python"), Path("/p.json"))["spec"]["template"]
    assert template["metadata"]["labels"][names.ENABLED_LABEL] == "true"
    (container,) = template["spec"]["containers"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "1"}


def test_the_pod_carries_the_whole_environment_of_a_real_engine_as_text() -> None:
    (container,) = engines.pool(Path("/v/bin/python"), Path("/p.json"))["spec"]["template"]["spec"]["containers"]
    environment = {entry["name"]: entry["value"] for entry in container["env"]}
    assert environment == engines.engine_environment(Path("/v/bin/python"), Path("/p.json"))
    assert environment["AIBRIX_ENGINE_PYTHON"] == "/v/bin/python"
    assert environment["AIBRIX_ENGINE_SLEEP_MODE"] == "off"
    assert Path(environment["AIBRIX_KVCACHED_STANDIN"]).is_file()
    assert all(isinstance(value, str) for value in environment.values())


def test_both_engines_fit_on_the_card_at_their_declared_size() -> None:
    assert card.parse_card(engines.CARD).usable_bytes == engines.CARD_BYTES
    need = engines.MAXIMUM_FOOTPRINT_BYTES + engines.KV_FLOOR_BYTES
    assert len(engines.CLAIMS) * need <= engines.CARD_BYTES


def test_the_booked_footprint_stays_below_the_declared_one(tmp_path: Path) -> None:
    (tmp_path / "profiles.json").write_text(json.dumps(engines.profiles()))
    booked = profile.load(str(tmp_path / "profiles.json"), "tiny-one")
    assert booked.footprint_bytes <= engines.MAXIMUM_FOOTPRINT_BYTES
    assert booked.asleep_footprint_bytes < booked.footprint_bytes


@pytest.mark.parametrize(
    ("limits", "seen", "complaints"),
    [
        pytest.param(DIVIDED, snapshot(), [], id="divided in two"),
        pytest.param({"tiny-one": 9 * GIB, "tiny-two": 7 * GIB}, snapshot(9 * GIB, 7 * GIB), [], id="divided unevenly"),
        pytest.param(DIVIDED, snapshot(tiny_two=24 * GIB), ["in force"], id="one limit is not in force"),
        pytest.param(
            {"tiny-one": 16 * GIB, "tiny-two": 16 * GIB},
            snapshot(16 * GIB, 16 * GIB),
            ["are promised on a card"],
            id="the card is promised twice",
        ),
        pytest.param(
            {"tiny-one": 1, "tiny-two": 8 * GIB}, snapshot(1), ["below its floor", "given out"], id="nothing for one"
        ),
        pytest.param(
            {"tiny-one": GIB, "tiny-two": GIB}, snapshot(GIB, GIB), ["given out"], id="most of the card lies idle"
        ),
        pytest.param(
            {"tiny-one": 8 * GIB, "other": 8 * GIB}, snapshot(), ["None are in force"], id="an engine is missing"
        ),
    ],
)
def test_a_card_is_well_divided_when_all_of_it_is_promised_once_and_in_force(
    limits: dict[str, int], seen: dict[str, Any], complaints: list[str]
) -> None:
    found = engines.check_division(limits, seen)
    assert len(found) == len(complaints)
    assert all(complaint in text for complaint, text in zip(complaints, found, strict=True))


@pytest.mark.parametrize(
    ("status", "words"),
    [
        pytest.param(None, "Pending", id="not seen by the operator yet"),
        pytest.param({"phase": "Active", "conditions": [{"type": "Ready", "status": "True"}]}, "Active", id="active"),
        pytest.param(
            {
                "phase": "Activating",
                "conditions": [
                    {"type": "Scheduled", "status": "True", "reason": "Placed", "message": "placed on pod p"},
                    {"type": "Ready", "status": "False", "reason": "EngineStarting", "message": "it boots"},
                ],
            },
            "Activating (EngineStarting: it boots)",
            id="the unmet condition says why",
        ),
    ],
)
def test_a_claim_is_described_by_its_phase_and_what_it_waits_for(status: dict[str, Any] | None, words: str) -> None:
    assert engines.describe({"metadata": {"name": "a"}, "status": status}) == words


def test_a_real_engine_and_its_workers_leave_what_pythonpath_put_before_their_own_modules() -> None:
    environ = {"PYTHONPATH": "/sim/standins:/checkout/:", "HOME": "/root"}
    path = ["", "/sim/standins", "/checkout", "/usr/lib/python3.11", "/v/lib/python3.11/site-packages"]

    assert hook.leave_python_path(path, environ) == ["", "/usr/lib/python3.11", "/v/lib/python3.11/site-packages"]
    assert environ == {"HOME": "/root"}
