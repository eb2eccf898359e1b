"""One frame of top: what is on it, that it keeps to its width, and what it leaves out on a low screen."""

import dataclasses
import io
from datetime import UTC, datetime

import pytest
from explain_builders import GIB, fleet_of
from rich.console import Console
from simulated import CARD_24, H20, model, simulated

from aibrix_operator.api.pool_policy import parse_policy
from aibrix_operator.explain import svg, top_frame
from aibrix_operator.modelclaim.snapshot import Pool

NOW = datetime(2026, 1, 1, 12, 30, 15, tzinfo=UTC)


def lines(frame, width=100):
    console = Console(file=io.StringIO(), width=width)
    console.print(frame)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def text(frame, width=100):
    return "\n".join(lines(frame, width))


def build(cluster, *, warnings=(), height=None, **look):
    frame = top_frame.build([fleet_of(cluster, **look)], "default", NOW, warnings)
    return dataclasses.replace(frame, height=height)


@simulated
async def test_cards_engines_and_who_waits(cluster):
    runtime = cluster.add_pod("warm-0", H20)
    cluster.apply("a", "30Gi", "10Gi")
    cluster.apply("b", "30Gi", "10Gi")
    await cluster.run(30)
    cluster.apply("c", "30Gi", "10Gi")
    await cluster.run(30)
    engine = runtime.engines[model("a")]
    engine.running, engine.waiting, engine.mapped_bytes, engine.restart_count = 3, 2, 5 * GIB, 1
    told = lines(build(cluster))
    assert told[0] == "aibrix-operator top  default  12:30:15 UTC  1 card(s), 2 engine(s), 1 claim(s) without a card"
    assert told[2] == "warm-0  95.1 GiB usable, room for 15.1 GiB"
    assert [told[3].count(glyph) for glyph in "█▓░·"] == [64, 5, 31, 0]
    assert " ".join(told[4].split()) == ("a serving 3 running, 2 waiting █ 30.0 GiB ▓ 5.0 of ░ 17.5 GiB 1 restart")
    assert " ".join(told[5].split()) == "b serving idle █ 30.0 GiB ▓ 0.0 of ░ 17.5 GiB"
    assert told[7:9] == [
        "Without a card",
        "c  Pending         NoMatchingPods: no warm pod can hold this model, which needs 40.0 GiB on a",
    ]
    assert told[9].split()[:3] == ["needs", "40.0", "GiB"]


@simulated
async def test_states_that_are_no_serving(cluster):
    runtime = cluster.add_pod("warm-0", H20)
    for name in ("asleep", "failed", "boots", "leaves", "quiet"):
        if name == "boots":
            runtime.boot_s = 1000
        cluster.apply(name, "3Gi", "1Gi")
        await cluster.run(20)
        runtime.boot_s = 1.0
    runtime.sleep(model("asleep"))
    runtime.fail(model("failed"))
    runtime.engines[model("quiet")].metrics_observed = False
    cluster.delete_claim("leaves")
    shown = {line.split()[0]: " ".join(line.split()) for line in lines(build(cluster)) if "█ 3.0" in line}
    assert shown["asleep"].startswith("asleep asleep █")
    assert shown["failed"].startswith("failed failed █")
    assert shown["boots"].startswith("boots booting █")
    assert shown["leaves"].startswith("leaves being deleted")
    assert shown["quiet"].startswith("quiet serving █")


@simulated
async def test_a_card_that_cannot_be_judged_says_why(cluster):
    cluster.add_pod("warm-0", CARD_24)
    cluster.apply("a", "6Gi", "1Gi")
    await cluster.run(30)
    told = lines(build(cluster, silent={"warm-0"}))
    assert told[2] == "warm-0  at least 24.0 GiB by its claims' records  its runtime did not answer"
    assert told[3].count("█") == 25
    assert "░ 18.0 GiB" in told[4]


@simulated
async def test_a_sleeper_that_lends_its_seat_is_drawn_as_what_it_holds(cluster):
    runtime = cluster.add_pod("warm-0", CARD_24)
    cluster.apply("a", "16Gi", "4Gi")
    await cluster.run(30)
    await cluster.stop_controller()
    runtime.sleep(model("a"), asleep_bytes=3 * GIB)
    runtime.engines[model("a")].mapped_bytes = runtime.engines[model("a")].limit_bytes = GIB
    fleet = fleet_of(cluster)
    policy = parse_policy('{"lifecycle": {"noWakeReserveWhileAsleep": true}}')
    pool = Pool("default", "pool", "uid", policy=policy)
    pods = {name: dataclasses.replace(pod, pool=pool) for name, pod in fleet.pods.items()}
    told = lines(top_frame.build([dataclasses.replace(fleet, pods=pods)], "default", NOW), width=96)
    assert told[2] == "warm-0  24.0 GiB usable, room for 21.0 GiB"
    assert [told[3].count(glyph) for glyph in "█▓░·"] == [8, 4, 0, 84]
    assert " ".join(told[4].split()) == "a asleep █ 2.0 GiB ▓ 1.0 of ░ 1.0 GiB"


@simulated
async def test_engines_without_a_claim_are_shown(cluster):
    runtime = cluster.add_pod("warm-0", CARD_24)
    cluster.seat("a", "warm-0", 6 * GIB, 1 * GIB, limit_bytes=18 * GIB)
    runtime.engines[model("a")].request = runtime.engines[model("a")].request.model_copy(update={"claim_ref": None})
    runtime.engines[model("a")].model = "stranger"
    told = text(build(cluster))
    assert "stranger (no claim)" in told
    assert "the engine serving stranger there answers to no claim" in told


@simulated
async def test_an_empty_cluster(cluster):
    assert "There is no warm pod." in text(build(cluster))


@simulated
async def test_claims_that_no_operator_has_looked_at(cluster):
    await cluster.stop_controller()
    cluster.apply("a", "6Gi", "1Gi")
    assert "the operator has not looked at it yet" in text(build(cluster))


@simulated
async def test_warnings_come_first(cluster):
    assert lines(build(cluster, warnings=["none of 3 runtime(s) can be reached from here"]))[2].startswith("none of 3")


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
@simulated
async def test_no_line_is_wider_than_the_terminal(cluster, width):
    cluster.add_pod("warm-with-a-rather-long-name-as-replica-sets-make-them", H20)
    cluster.apply("a-claim-with-a-long-name-of-sixty-three-characters-is-the-longest", "30Gi", "10Gi")
    cluster.apply("b", "90Gi", "10Gi")
    await cluster.run(30)
    told = lines(build(cluster), width)
    assert max(map(len, told)) <= width
    assert any("█" in line and len(line) == width for line in told)


@simulated
async def test_a_low_screen_leaves_out_engines_and_then_cards_but_nobody_who_waits(cluster):
    for number in range(6):
        cluster.add_pod(f"warm-{number}", CARD_24)
        cluster.apply(f"c{number}", "16Gi", "4Gi")
    cluster.apply("waits", "16Gi", "4Gi")
    await cluster.run(30)
    for height, cards in ((60, 6), (24, 6), (16, 2)):
        told = lines(build(cluster, height=height))
        assert len(told) <= height
        assert sum("usable" in line for line in told) == cards, height
        assert any(line.startswith("waits ") for line in told)
        assert ("█ 16.0 GiB" in "\n".join(told)) == (height == 60)
        assert ("more card(s)" in "\n".join(told)) == (cards < 6)


@simulated
async def test_names_carry_their_namespace_when_there_are_several(cluster):
    cluster.apply("a", "6Gi", "1Gi")
    await cluster.run(5)
    fleet = fleet_of(cluster)
    frame = top_frame.build([fleet, fleet], "all namespaces", NOW)
    assert [row.name for row in frame.waiting] == ["default/a", "default/a"]


@simulated
async def test_the_picture_is_svg_that_fetches_nothing(cluster):
    cluster.add_pod("warm-0", H20)
    await cluster.run(1)
    console = Console(file=io.StringIO(), width=100, record=True)
    console.print(build(cluster))
    drawn = svg.picture_of(console, "top")
    assert drawn.startswith("<svg ")
    assert "warm-0" in drawn
    assert "url(" not in drawn.replace("url(#", "")
    assert drawn.count("http") == drawn.count("http://www.w3.org")
