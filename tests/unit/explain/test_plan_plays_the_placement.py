"""A plan says what the controller would do: who sits where, under which idle limit, and the very words of a refusal."""

import random

import pytest
import yaml
from explain_builders import GIB, manifest
from simulated import model, simulated

from aibrix_operator.explain.declared import Source, read_claims
from aibrix_operator.explain.planning import play, to_json
from aibrix_operator.explain.racks import parse_pods


def plan(bodies, *cards):
    return play(read_claims([Source("claims.yaml", yaml.safe_dump_all(bodies))]).claims, parse_pods(cards))


def seats(played):
    """Pod → {claim: limit}, of those that are not empty."""
    return {c.pod.name: {s.claim: s.kv_limit_bytes for s in c.seats} for c in played.cards if c.seats}


def test_two_claims_share_an_h20_and_the_third_is_told_why_not():
    played = plan([manifest("a"), manifest("b"), manifest("c")], "1xH20")
    assert seats(played) == {"h20-1": {"a": 18_838_800_302, "b": 18_838_800_302}}
    [refused] = played.unplaced
    assert not played.fits
    assert (refused.claim, refused.reason) == ("c", "NoMatchingPods")
    assert refused.message == (
        "no warm pod can hold this model, which needs 40.0 GiB on a card: h20-1 can offer at most 15.1 GiB, even with "
        "every engine on it at its floor (the card holds 95.1 GiB, and 80.0 GiB of it is promised to 2 instance(s))"
    )


def test_a_claim_alone_has_the_card_to_itself():
    assert seats(plan([manifest("a")], "1xH20")) == {"h20-1": {"a": 69_889_855_324}}


def test_the_order_of_documents_is_the_order_of_age():
    big, small = manifest("big", "60Gi", "10Gi"), manifest("small", "30Gi", "10Gi")
    assert [u.claim for u in plan([big, small], "1xH20").unplaced] == ["small"]
    assert [u.claim for u in plan([small, big], "1xH20").unplaced] == ["big"]


def test_a_refusal_speaks_of_the_cards_as_they_are_in_the_end():
    played = plan([manifest("first"), manifest("big", "90Gi", "1Gi"), manifest("last", "20Gi")], "1xH20")
    assert "70.0 GiB of it is promised to 2 instance(s)" in played.unplaced[0].message


def test_a_claim_that_is_refused_does_not_hold_up_the_next():
    played = plan([manifest("huge", "200Gi"), manifest("a")], "1xH20")
    assert played.unplaced[0].reason == "TooLargeForAnyCard"
    assert seats(played) == {"h20-1": {"a": 69_889_855_324}}


def test_claims_on_two_gpus_go_to_pods_with_two():
    args = {"args": {"--tensor-parallel-size": "2"}}
    played = plan([manifest("wide", engineConfig=args), manifest("narrow")], "1x2xH20", "1xH20")
    assert seats(played) == {"2xh20-1": {"wide": 69_889_855_324}, "h20-1": {"narrow": 69_889_855_324}}
    [refused] = plan([manifest("wide", engineConfig=args)], "1xH20").unplaced
    assert refused.message == "no available candidate warm pod for model"


def test_sglang_takes_pods_of_any_number_of_gpus():
    assert list(seats(plan([manifest("s", engine="sglang")], "1x2xH20"))) == ["2xh20-1"]


def test_pools_are_looked_at_when_cards_name_them():
    bodies = [manifest("a", pool="big"), manifest("b", pool="small")]
    played = plan(bodies, "big=1xH20", "other=1xH20")
    assert list(seats(played)) == ["big-h20-1"]
    assert [(u.claim, u.message) for u in played.unplaced] == [("b", "no available candidate warm pod for model")]
    assert plan(bodies, "2xH20").fits


def test_two_claims_of_one_model_name_do_not_share_a_card():
    bodies = [manifest("a", modelName="m"), manifest("b", modelName="m")]
    assert {len(on) for on in seats(plan(bodies, "2xH20")).values()} == {1}
    assert "it serves a model of that name for claim a" in plan(bodies, "1xH20").unplaced[0].message


def test_json_has_every_figure_and_the_order():
    told = to_json(plan([manifest("a"), manifest("b", "90Gi")], "1xH20"))
    [card] = told["cards"]
    assert (told["fits"], card["usableBytes"], card["roomBytes"]) == (
        False,
        102_102_110_044,
        102_102_110_044 - 40 * GIB,
    )
    assert card["claims"] == [
        {
            "name": "a",
            "footprintBytes": 30 * GIB,
            "kvFloorBytes": 10 * GIB,
            "kvLimitBytes": 69_889_855_324,
        }
    ]
    assert [(u["name"], u["needBytes"]) for u in told["unplaced"]] == [("b", 100 * GIB)]


@pytest.mark.parametrize("seed", range(6))
@simulated
async def test_a_plan_is_what_the_controller_comes_to(cluster, seed):
    rng = random.Random(seed)
    cards = [f"{rng.randint(1, 3)}x{kind}" for kind in rng.sample(["H20", "L40S", "24Gi", "A100-40G"], 2)]
    if rng.random() < 0.6:
        cards.append("1x2xH20")
    bodies = []
    for number in range(14):
        # Footprints that no two sums share: among Pods with equal rooms real free memory decides, which is simulated
        # as the whole card.
        name, footprint = f"claim-{number:02}", (3 << 30) + rng.randrange(30 << 30)
        args = {"args": {"--tensor-parallel-size": "2"}} if rng.random() < 0.2 else {}
        spec = {"modelName": model(name), "artifactURL": f"huggingface://org/{rng.randrange(5)}", "engineConfig": args}
        bodies.append(manifest(name, str(footprint), str((1 << 30) + rng.randrange(8 << 30)), pool="pool-a", **spec))
    for pod in parse_pods(cards):
        cluster.add_pod(pod.name, *[pod.usable_bytes] * pod.gpus)
    for body in bodies:
        per_gpu, spec = body["spec"]["perGPU"], {k: v for k, v in body["spec"].items() if k != "perGPU"}
        cluster.apply(body["metadata"]["name"], per_gpu["maximumFootprint"], per_gpu["kvFloor"], **spec)
        await cluster.run(5)
    await cluster.run(90)

    played = plan(bodies, *cards)

    found, refused = {}, {}
    for body in bodies:
        name = body["metadata"]["name"]
        for instance in cluster.status(name).instances:
            found.setdefault(instance.pod, {})[name] = instance.kv_limit_bytes
        if not cluster.status(name).instances:
            refused[name] = cluster.condition(name, "Scheduled")[1:]
    assert found == seats(played)
    assert refused == {u.claim: (u.reason, u.message) for u in played.unplaced}
    assert found
    assert refused
