"""The page of a real operator: served beside its probes, over the same facts as its status."""

import asyncio

import aiohttp
import pytest

from aibrix_operator.api import names
from aibrix_operator.sandbox import operators
from aibrix_operator.sandbox.kubectl import Kubectl
from aibrix_operator.sandbox.pool import POOL

pytestmark = pytest.mark.integration
WITHIN_S = 30


@pytest.fixture
def replica(sandbox):
    [address] = operators.list_operators(sandbox)
    return address


async def test_the_page_shows_the_warm_pod_of_the_cluster(replica):
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{replica.page_url}/") as page:
            assert page.status == 200
            assert "text/html" in page.headers["Content-Type"]
        cards = await eventually(lambda: read_cards(session, replica))
    assert [card["gpus"] for card in cards] == [1]
    assert cards[0]["ready"] is True
    assert cards[0]["hole"] == ""


async def test_a_claim_that_is_applied_comes_onto_the_page_by_itself(sandbox, replica):
    kubectl = Kubectl(sandbox.kubeconfig)
    kubectl.apply(
        {
            "apiVersion": f"{names.MODEL_GROUP}/{names.MODEL_VERSION}",
            "kind": "ModelClaim",
            "metadata": {"name": "paged"},
            "spec": {
                "podSelector": {"matchLabels": {names.POOL_LABEL: POOL}},
                "artifactURL": "huggingface://example/paged",
                "perGPU": {"maximumFootprint": "12Gi", "kvFloor": "2Gi"},
            },
        }
    )
    try:
        async with aiohttp.ClientSession() as session:
            claim = await eventually(lambda: serving_claim(session, replica, "paged"))
    finally:
        kubectl.run("delete", "modelclaim", "paged", f"--timeout={WITHIN_S}s")
    assert (claim["phase"], claim["reason"], claim["states"]) == ("Active", "ModelClaimActive", ["serving"])


async def test_who_leads_says_so_to_prometheus(replica):
    async with aiohttp.ClientSession() as session:
        await eventually(lambda: says(session, f"{replica.url}/metrics", "aibrix_operator_leading 1.0"))


async def eventually(ask):
    """The first answer that is something."""
    deadline = asyncio.get_running_loop().time() + WITHIN_S
    while not (answer := await ask()):
        assert asyncio.get_running_loop().time() < deadline, "it never was so"
        await asyncio.sleep(0.2)
    return answer


async def says(session, url, words):
    async with session.get(url) as answer:
        return words in await answer.text()


async def read_cards(session, replica):
    """Cards once each has been measured; nothing before."""
    async with session.get(f"{replica.page_url}/api/frame") as answer:
        cards = (await answer.json())["cards"]
    return cards if all(card["usableBytes"] for card in cards) else []


async def serving_claim(session, replica, name):
    """The claim as the page has it, once its engine serves; None before."""
    async with session.get(f"{replica.page_url}/api/frame") as answer:
        claims = (await answer.json())["claims"]
    return next((c for c in claims if c["name"] == name and c["phase"] == "Active"), None)
