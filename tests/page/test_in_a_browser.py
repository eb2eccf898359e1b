"""The page as people meet it: drawn, read aloud, used from the keyboard, and in light and dark; in a real browser."""

import asyncio
import dataclasses
import os
from pathlib import Path

import browser
import pytest
from page_stage import Shown, played, serving

from aibrix_operator.explain.looking import Look

DRAWN = "document.querySelector('main')?.getAttribute('aria-busy') === 'false'"
DOCS = Path(__file__).parents[2] / "docs" / "pictures"

# Every text on the page: its contrast with what lies behind it.
CONTRASTS = """(() => {
  const pixel = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const read = (colour) => {
    pixel.clearRect(0, 0, 1, 1); pixel.fillStyle = colour; pixel.fillRect(0, 0, 1, 1);
    return [...pixel.getImageData(0, 0, 1, 1).data];
  };
  const channel = (v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const colour = read(getComputedStyle(e).backgroundColor);
      if (colour[3] === 255) return colour;
    }
    return [255, 255, 255, 255];
  };
  const found = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; (node = walk.nextNode()); ) {
    const e = node.parentElement, box = e.getBoundingClientRect();
    if (!node.data.trim() || box.width < 2 || box.height < 2) continue;
    if (e.closest("noscript, legend, .hidden, .skip")) continue;
    const [a, b] = [light(read(getComputedStyle(e).color)), light(behind(e))];
    found.push([(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), node.data.trim().slice(0, 40)]);
  }
  return found.sort((a, b) => a[0] - b[0]);
})()"""

# How many rules of axe hold, and where which does not.
AXE = """axe.run(document, { resultTypes: ["violations"] }).then((found) => ({
  passes: found.passes.length,
  violations: found.violations.map((rule) => [rule.id, rule.help, rule.nodes.map((node) => node.html)]),
}))"""


@pytest.fixture(scope="module")
def chromium():
    with browser.running() as address:
        yield address


@pytest.fixture(scope="module")
def look():
    return played()


async def shown(tab, url):
    await tab.go(url)
    await tab.until(DRAWN)


async def test_cards_and_claims_are_drawn_and_nothing_is_complained_about(chromium, look):
    async with serving(Shown(look)) as url, browser.tab(chromium) as tab:
        await shown(tab, url)
        assert await tab.value("document.querySelectorAll('.card').length") == 4
        assert await tab.value("document.querySelectorAll('.claims > tbody > tr').length") == 9
        label = await tab.value("document.querySelector('.bar').getAttribute('aria-label')")
        assert label.startswith("phi-4: footprint 30.0 GiB, KV 3.4 of ")
        # Each bar is as full as its card: what is drawn of an engine is its part of the usable memory.
        drawn = await tab.value(
            "(() => { const bar = document.querySelector('.bar'), whole = bar.getBoundingClientRect().width;"
            "return document.querySelector('.share .footprint').getBoundingClientRect().width / whole; })()"
        )
        assert drawn == pytest.approx(30 / 95.1, abs=0.02)
        assert tab.complaints == []


async def test_a_screen_reader_finds_landmarks_tables_and_what_the_bars_say(chromium, look):
    async with serving(Shown(look)) as url, browser.tab(chromium) as tab:
        await shown(tab, url)
        roles = await tab.roles()
    for landmark in ("banner", "main", "contentinfo", "search"):
        assert landmark in [role for role, _ in roles]
    assert ("heading", "Cards") in roles
    assert ("heading", "Claims") in roles
    assert ("region", "Cards") in roles
    assert ("table", "Engines on warm-pool-7c9d5f-0") in roles
    assert ("table", "Claims, by name") in roles
    headers = {name for role, name in roles if role == "columnheader"}
    assert headers >= {"Claim", "State", "Requests", "Footprint", "KV in use", "Phase", "Where", "Needs", "Why", "For"}
    assert ("rowheader", "mistral-24b") in roles
    bars = [name for role, name in roles if role == "image" and "; free: " in name]
    assert len(bars) == 4
    assert "status" in [role for role, _ in roles]
    unnamed = [role for role, name in roles if role in ("button", "radio", "searchbox", "image") and not name]
    assert unnamed == []


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_no_barrier(chromium, look, scheme, width):
    found = sorted((Path(__file__).parents[2] / ".cache" / "checks").glob("lib/python*/site-packages/*/axe.min.js"))
    if not found:
        pytest.skip("axe is not installed; `make checks` brings it")
    async with serving(Shown(look)) as url, browser.tab(chromium) as tab:
        await tab.look(scheme=scheme, width=width)
        await shown(tab, url)
        await tab.value("document.querySelector('[data-claim=\"default/mistral-24b\"]').click()")
        await tab.until("document.querySelectorAll('tr.about table').length === 2")
        await tab.value(f"{found[0].read_text()}; 0")
        told = await tab.value(AXE)
    assert told["violations"] == []
    assert told["passes"] > 40


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_every_text_stands_out_from_what_is_behind_it(chromium, look, scheme):
    async with serving(Shown(look)) as url, browser.tab(chromium) as tab:
        await tab.look(scheme=scheme)
        await shown(tab, url)
        await tab.value("document.querySelector('[data-claim=\"default/mistral-24b\"]').click()")
        await tab.until("document.querySelectorAll('tr.about table').length === 2")
        contrasts = await tab.value(CONTRASTS)
    assert len(contrasts) > 100
    weak = [(round(ratio, 2), text) for ratio, text in contrasts if ratio < 4.5]
    assert weak == []


async def test_the_keyboard_reaches_the_claims_and_opens_one(chromium, look):
    async with serving(Shown(look)) as url, browser.tab(chromium) as tab:
        await shown(tab, url)
        await tab.press("Tab")
        assert await tab.value("document.activeElement.textContent") == "Skip to the claims"
        await tab.press("Enter", "\r")
        await tab.until("document.activeElement.id === 'claims'")
        for _ in range(20):
            await tab.press("Tab")
            if await tab.value("document.activeElement.dataset.claim === 'default/deepseek-r1'"):
                break
        outline = await tab.value("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid"
        await tab.press("Enter", "\r")
        await tab.until("document.querySelectorAll('tr.about table').length === 2")
        assert await tab.value("document.activeElement.getAttribute('aria-expanded')") == "true"
        # What arrives later redraws the page, and takes neither the focus nor what was opened.
        await asyncio.sleep(0)
        await tab.until("document.activeElement.dataset.claim === 'default/deepseek-r1'")
        await tab.press("Enter", "\r")
        await tab.until("document.querySelectorAll('tr.about').length === 0")


async def test_an_opened_claim_says_what_each_card_lacks_and_who_would_have_to_go(chromium, look):
    async with serving(Shown(look)) as url, browser.tab(chromium) as tab:
        await shown(tab, url)
        await tab.value("document.querySelector('[data-claim=\"default/mistral-24b\"]').click()")
        await tab.until("document.querySelectorAll('tr.about table').length === 2")
        told = await tab.value("document.querySelector('tr.about').innerText")
    assert "lacks 34.9 GiB, with every engine at its floor" in told
    assert "on warm-pool-7c9d5f-1: delete llama-8b, which frees 40.0 GiB" in told


async def test_claims_are_found_by_text_and_by_what_they_do(chromium, look):
    names = "[...document.querySelectorAll('.claims [data-claim]')].map((b) => b.textContent).join(' ')"
    async with serving(Shown(look)) as url, browser.tab(chromium) as tab:
        await shown(tab, url)
        await tab.value("document.querySelector('input[value=waiting]').click()")
        assert await tab.value(names) == "deepseek-r1 mistral-24b typo"
        await tab.value("document.querySelector('input[value=asleep]').click()")
        assert await tab.value(names) == "embed-small"
        await tab.value("document.querySelector('input[value=all]').click()")
        await tab.value("document.querySelector('[type=search]').focus()")
        await tab.call("Input.insertText", text="QWEN3")
        assert await tab.value(names) == "qwen3-32b qwen3-8b"
        await tab.call("Input.insertText", text=" no such")
        assert await tab.value("document.querySelector('#claim-table').innerText") == "None of 9 claims is such a one."


async def test_what_changes_in_the_cluster_changes_on_the_page_by_itself(chromium, look):
    source = Shown(look)
    async with serving(source) as url, browser.tab(chromium) as tab:
        await shown(tab, url)
        assert await tab.value("document.querySelector('#live').textContent") == "live"
        await tab.value("(document.querySelector('.card').mark = 'the same element')")
        source.shown = without(look, "phi-4", "typo")
        await tab.until("document.querySelectorAll('.claims > tbody > tr').length === 7")
        assert await tab.value("document.querySelector('.card').mark") == "the same element"
        source.error = "the API server does not answer"
        await tab.until("document.querySelector('#live').textContent.endsWith('the API server does not answer')")
        assert await tab.value("document.querySelectorAll('.card').length") == 4, "the last frame stays"
        source.error = ""
        await tab.until("document.querySelector('#live').textContent === 'live'")


async def test_names_and_messages_of_others_are_text_and_never_markup(chromium, look):
    evil = "<img src=x onerror=document.title='taken'><b>bold</b>"
    fleet = look.fleets[0]
    claims = [
        dataclasses.replace(c, name=evil, spec=c.spec.model_copy(update={"model_name": evil})) for c in fleet.claims
    ]
    source = Shown(dataclasses.replace(look, fleets=(dataclasses.replace(fleet, claims=tuple(claims[:1])),)))
    async with serving(source) as url, browser.tab(chromium) as tab:
        await shown(tab, url)
        assert evil in await tab.value("document.querySelector('.claims').innerText")
        assert await tab.value("document.querySelectorAll('main img, main b').length") == 0
        assert not (await tab.value("document.title")).startswith("taken")
        assert tab.complaints == []


async def test_nothing_moves_where_the_user_wants_no_motion(chromium, look):
    moving = (
        "[...document.querySelectorAll('*')].map((e) => getComputedStyle(e))"
        ".filter((s) => s.animationName !== 'none' || s.transitionDuration !== '0s').length"
    )
    async with serving(Shown(look)) as url, browser.tab(chromium) as tab:
        await shown(tab, url)
        assert await tab.value(moving) > 0
        await tab.look(motion="reduce")
        assert await tab.value(moving) == 0


async def test_a_cluster_with_nothing_says_what_to_do(chromium):
    async with serving(Shown(Look(()))) as url, browser.tab(chromium) as tab:
        await shown(tab, url)
        said = await tab.value("document.querySelector('main').innerText")
    assert "There is no warm Pod." in said
    assert "There is no ModelClaim." in said


async def test_on_a_narrow_screen_the_page_itself_does_not_scroll_sideways(chromium, look):
    async with serving(Shown(look)) as url, browser.tab(chromium) as tab:
        await tab.look(width=390, height=800)
        await shown(tab, url)
        assert await tab.value("document.documentElement.scrollWidth") <= 390


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_the_pictures_of_the_guide_are_of_this_page(chromium, look, scheme, tmp_path):
    folder = DOCS if os.environ.get("AIBRIX_WRITE_PICTURES") else tmp_path
    async with serving(Shown(look)) as url, browser.tab(chromium) as tab:
        await tab.look(scheme=scheme, scale=1.5)
        await shown(tab, url)
        await tab.until("document.getAnimations().every((a) => a.effect.getTiming().iterations === Infinity)")
        height = await tab.value("Math.ceil(document.querySelector('footer').getBoundingClientRect().bottom)")
        picture = await tab.picture(height)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"page-{scheme}.webp").write_bytes(picture)
    assert picture[8:12] == b"WEBP"
    assert len(picture) > 20_000


def without(look, *names):
    """The same look with these claims gone."""
    fleet = look.fleets[0]
    claims = tuple(c for c in fleet.claims if c.name not in names)
    return dataclasses.replace(look, fleets=(dataclasses.replace(fleet, claims=claims),))
