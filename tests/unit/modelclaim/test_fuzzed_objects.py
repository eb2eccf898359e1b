"""Fuzzed manifests, Pods and runtime answers: each ends in a condition, an Event or a refusal.

Never in a traceback, and never in the way of a claim that is well. A run plays 2,400 claims, 2,400 Pods and 2,400
readings here; with the 3,300 damaged answers that ``tests/unit/runtime_api`` gives to the client, that is 10,500.
"""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime

from builders import GIB
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from simulated import CARD_24, simulated
from sleepers import claim_uid

from aibrix_operator.api import names
from aibrix_operator.api.modelclaim import ClaimPhase
from aibrix_operator.cluster.resource import MODEL_CLAIMS, PODS
from aibrix_operator.modelclaim.draft import ROUND_S
from aibrix_operator.runtime_api import wire
from aibrix_operator.runtime_api.outcome import Done, NotSent, Refused, Unknown
from aibrix_operator.runtime_api.wire import EnginePhase
from aibrix_operator.sim.store import wall
from aibrix_operator.sim.world import NAMESPACE, POOL

AT_ONCE = 20
WORLDS = 120
"""Each sees ``AT_ONCE`` objects, which is quicker than a world for each."""
fuzz = settings(
    max_examples=WORLDS,
    deadline=None,
    derandomize=True,
    database=None,
    # Shrinking plays hundreds of worlds. A failure names the object that it is about, so it is shown as it was drawn.
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)

texts = st.text(max_size=12)
scalars = st.none() | st.booleans() | st.integers(-(2**65), 2**65) | texts | st.sampled_from(["", "1Gi", "0", "-1"])
anything = scalars | st.lists(scalars, max_size=2) | st.dictionaries(texts, scalars, max_size=2)


def mostly(valid):
    """A valid value, or anything at all."""
    return st.one_of(valid, valid, valid, anything)


quantities = st.sampled_from(["1Gi", "6Gi", "5.6Gi", "30m", "0", "-1Gi", "2Pi", "1e3", "", "Ki", 7, 10**30, "9" * 40])
flags = st.sampled_from(
    ["--tensor-parallel-size", "--data-parallel-size", "--gpu-memory-utilization", "--max-model-len"]
)
selectors = st.fixed_dictionaries(
    {},
    optional={
        "matchLabels": mostly(st.just({names.POOL_LABEL: POOL})),
        "matchExpressions": mostly(
            st.lists(
                st.fixed_dictionaries(
                    {"key": texts, "operator": st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"])},
                    optional={"values": st.lists(texts, max_size=2)},
                ),
                max_size=2,
            )
        ),
    },
)
specs = st.fixed_dictionaries(
    {"podSelector": mostly(selectors), "artifactURL": mostly(texts)},
    optional={
        "modelName": mostly(texts),
        "engine": mostly(st.sampled_from(["vllm", "sglang"])),
        "replicas": mostly(st.just(1)),
        "engineConfig": mostly(
            st.fixed_dictionaries(
                {"args": mostly(st.dictionaries(flags, mostly(st.sampled_from(["1", "2", " 1 ", "", "9" * 30]))))}
            )
        ),
        "perGPU": mostly(
            st.fixed_dictionaries({"maximumFootprint": mostly(quantities), "kvFloor": mostly(quantities)})
        ),
        "futureField": anything,
    },
)
instances = st.fixed_dictionaries(
    {"pod": st.sampled_from(["warm-0", "gone", ""])},
    optional={
        "port": mostly(st.integers(-1, 70_000)),
        "phase": mostly(st.sampled_from(["Active", "Activating", "Sleeping", "Failed"])),
        "kvLimitBytes": mostly(st.integers(-1, 2**64)),
        "reason": mostly(texts),
    },
)
statuses = st.fixed_dictionaries(
    {},
    optional={
        "phase": mostly(st.sampled_from(["Active", "Pending", "Unknown"])),
        "instances": mostly(st.lists(instances, max_size=2)),
        "conditions": mostly(st.just([])),
        "candidates": mostly(st.just(1)),
    },
)
claims = st.fixed_dictionaries(
    {"spec": mostly(specs)},
    optional={"status": mostly(statuses), "finalizers": st.just([names.CLAIM_FINALIZER]), "generation": st.just(3)},
)


def put_claim(cluster, name, drawn):
    metadata = {
        "name": name,
        "namespace": NAMESPACE,
        **{k: drawn[k] for k in ("finalizers", "generation") if k in drawn},
    }
    body = {"metadata": metadata, **{k: drawn[k] for k in ("spec", "status") if k in drawn}}
    cluster.store.put(MODEL_CLAIMS, body)


def is_explained(cluster, name):
    """Whether somebody who looks at the claim learns what became of it."""
    status = cluster.store.objects[MODEL_CLAIMS.plural, NAMESPACE, name].get("status")
    conditions = status.get("conditions") if isinstance(status, dict) else None
    return bool(conditions) or bool(cluster.events(claim=name))


@fuzz
@given(drawn=st.lists(claims, min_size=AT_ONCE, max_size=AT_ONCE))
@simulated
async def test_fuzzed_claims_are_explained_and_stand_in_nobodys_way(cluster, drawn):
    cluster.add_pod("warm-0", 80 * GIB)
    cluster.add_pod("warm-1", CARD_24, labels={names.POOL_LABEL: "kept"})
    selector = {"matchLabels": {names.POOL_LABEL: "kept"}}
    for number, one in enumerate(drawn):
        put_claim(cluster, f"fuzzed-{number}", one)
    cluster.laws.forgive()  # fuzzed records promise what they like; what is done about them is what counts
    cluster.apply("well", "6Gi", "1Gi", podSelector=selector)
    await cluster.run(20)
    for number in range(len(drawn)):
        assert is_explained(cluster, f"fuzzed-{number}"), drawn[number]
    assert cluster.condition("well", "Scheduled")[0] in ("True", "False")


routes = st.sampled_from(["{}", "", "null", '{"model":"m","port":1,"state":"active"}', '{"port":-1}', "\x00"])
pod_bodies = st.fixed_dictionaries(
    {
        "labels": st.none() | st.dictionaries(st.sampled_from([names.POOL_LABEL, names.ENABLED_LABEL, "x"]), texts),
        "annotations": st.none()
        | st.dictionaries(
            st.sampled_from([names.route_annotation("well"), names.route_annotation(""), names.wake_annotation("b")]),
            routes | texts,
        ),
        "status": st.none()
        | st.fixed_dictionaries(
            {},
            optional={
                "phase": st.sampled_from(["Running", "Pending", "Succeeded", ""]),
                "podIP": st.sampled_from(["10.0.0.9", "", "fd00::1", "not an address"]),
                "conditions": st.none() | st.lists(st.fixed_dictionaries({"type": texts, "status": texts}), max_size=2),
            },
        ),
        "containers": st.none()
        | st.lists(
            st.fixed_dictionaries({"resources": st.none() | st.dictionaries(st.just("limits"), st.just({}))}),
            max_size=2,
        ),
    }
)


@fuzz
@given(drawn=st.lists(pod_bodies, min_size=AT_ONCE, max_size=AT_ONCE))
@simulated
async def test_fuzzed_pods_keep_no_claim_from_its_own(cluster, drawn):
    for number, one in enumerate(drawn):
        metadata = {"name": f"fuzzed-{number}", "namespace": NAMESPACE}
        metadata |= {k: one[k] for k in ("labels", "annotations") if one[k] is not None}
        body = {"metadata": metadata, "spec": {"containers": one["containers"]}, "status": one["status"]}
        cluster.store.put(PODS, body)
    cluster.add_pod("warm-0", CARD_24)
    cluster.apply("well", "6Gi", "1Gi")
    await cluster.run(20)
    assert cluster.status("well").phase == ClaimPhase.ACTIVE


SIZES = (-1, 0, 1, 4 * GIB, 18 * GIB, CARD_24, 2**63 - 1)
REFS = (None, None, *(wire.ClaimRef(namespace=NAMESPACE, name="a", uid=uid) for uid in ("", "x", "uid-a")))
MOMENTS = (None, datetime.min.replace(tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC), datetime.max.replace(tzinfo=UTC))
FIELDS = {
    "model_name": ("model-of-a", "model-of-b", "", "stray"),
    "claim_ref": REFS,
    "port": (0, 1, 20_000, 65_535),
    "phase": tuple(EnginePhase),
    "ready": (False, True),
    "alive": (False, True),
    "last_error": (None, "", "CUDA out of memory", "\x00\ud800", "e" * 5_000),
    "last_transition": MOMENTS,
    "kv_used_bytes": SIZES,
    "kv_capacity_bytes": SIZES,
    "sleeping_footprint_bytes": (None, 0, GIB, 2**62),
    "request_metrics_observed": (False, True),
    "requests_running": (0, 3, 2**40),
    "requests_waiting": (0, 1),
    "can_sleep": (None, False, True),
}


def reading(seed):
    """Up to two cards and four engines, every figure of which may contradict the others."""
    choose = random.Random(seed)
    cards = tuple(
        wire.Accelerator(id=f"GPU-{n}", hbm_total_bytes=choose.choice((0, 1, CARD_24)), hbm_usable_bytes=size)
        for n, size in enumerate(choose.choices(SIZES, k=choose.randrange(3)))
    )
    engines = tuple(
        wire.ModelState(**{field: choose.choice(values) for field, values in FIELDS.items()})
        for _ in range(choose.randrange(5))
    )
    return wire.Snapshot(observed_at=wall(), accelerators=cards, models=engines)


outcomes = st.sampled_from([None, Refused("no", 400), NotSent("no route"), NotSent("late", True), Unknown("lost")])


@fuzz
@given(first=st.integers(0, 2**32), answers=st.lists(outcomes, min_size=1, max_size=AT_ONCE))
@simulated
async def test_fuzzed_readings_and_answers_end_no_pass_and_the_next_true_reading_mends_all(cluster, first, answers):
    """A reading is made of a seed: drawn field by field, nine tenths of the time would go into drawing."""
    runtime = cluster.add_pod("warm-0", CARD_24)
    cluster.apply("a", "6Gi", "1Gi")
    cluster.apply("b", "6Gi", "1Gi")
    await cluster.run(1)
    ref = wire.ClaimRef(namespace=NAMESPACE, name="a", uid=claim_uid(cluster, "a"))
    told, all_told = [], asyncio.Event()

    async def lie():
        cluster.world.audit_suspects.clear()  # it would speak of the lies
        told.append(reading(first + len(told)))
        if len(told) == AT_ONCE:
            all_told.set()
        models = [m.model_copy(update={"claim_ref": ref}) if m.claim_ref == REFS[-1] else m for m in told[-1].models]
        return Done(told[-1].model_copy(update={"models": tuple(models)}))

    async def answer(call):
        await asyncio.sleep(0.1)
        return answers[len(runtime.calls) % len(answers)]

    runtime.before_snapshot, runtime.before_call = lie, answer
    async with asyncio.timeout(AT_ONCE * (ROUND_S + 1)):
        await all_told.wait()  # unchecked: the laws see the truth, not the lies that are told
    runtime.before_snapshot = runtime.before_call = None
    await asyncio.sleep(ROUND_S)  # the last lie is answered until the truth is read
    cluster.laws.forgive()
    cluster.world.audit_suspects.clear()
    await cluster.run(120)
    for claim in "ab":
        assert is_explained(cluster, claim)
        assert cluster.status(claim).phase in (ClaimPhase.ACTIVE, ClaimPhase.FAILED, ClaimPhase.PENDING)
