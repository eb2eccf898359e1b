"""Our quantity reader and the API server's own agree about every form of the corpus."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path

import pytest
from api_claims import ACCEPTED, spec

from aibrix_operator.api.quantity import QuantityError, parse_quantity

pytestmark = pytest.mark.integration

CORPUS_FILE = Path(__file__).parents[2] / "unit" / "api" / "quantities.txt"
CORPUS = [
    json.loads(line.split("\t")[1])
    for line in CORPUS_FILE.read_text(encoding="ascii").splitlines()
    if line and not line.startswith("#")
]
SIDE_BY_SIDE = 16


def is_ours(text: str) -> bool:
    with contextlib.suppress(QuantityError):
        parse_quantity(text)
        return True
    return False


async def test_the_api_server_and_our_reader_take_the_same_forms(claims):
    """Asked of the claim's own field. No form is kept from the rule: the schema has no pattern, and text that looks
    like a number stays text."""
    limit = asyncio.Semaphore(SIDE_BY_SIDE)

    async def verdict(text: str) -> str:
        async with limit:
            return await claims.verdict_on(spec(perGPU={"maximumFootprint": text, "kvFloor": "1Gi"}))

    verdicts = dict(zip(CORPUS, await asyncio.gather(*map(verdict, CORPUS)), strict=True))

    assert len(verdicts) >= 300
    assert {text for text, said in verdicts.items() if said == ACCEPTED} == {t for t in CORPUS if is_ours(t)}
    refusals = {said for said in verdicts.values() if said != ACCEPTED}
    assert all("maximumFootprint must be a Kubernetes quantity" in said for said in refusals)
