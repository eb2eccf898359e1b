"""What the page's server answers, and how seldom it looks."""

import aiohttp
import pytest
from page_stage import Shown, played, serving

from aibrix_operator.page.server import INTERVAL_S, Address, Page, parse_address


@pytest.fixture(scope="module")
def look():
    return played()


async def get(url, path, **headers):
    async with aiohttp.ClientSession() as session, session.get(url + path, headers=headers) as answer:
        return answer.status, answer.headers, await answer.read()


async def test_the_page_loads_nothing_but_its_own_files_and_no_other_page_may_frame_it(look):
    async with serving(Shown(look)) as url:
        status, headers, body = await get(url, "/")
    assert status == 200
    assert b"http://" not in body
    assert b"https://" not in body
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert headers["X-Content-Type-Options"] == "nosniff"


async def test_a_frame_that_the_browser_has_is_not_sent_again(look):
    async with serving(Shown(look)) as url:
        status, headers, _ = await get(url, "/api/frame")
        assert status == 200
        again, _, body = await get(url, "/api/frame", **{"If-None-Match": headers["ETag"]})
    assert (again, body) == (304, b"")


async def test_many_browsers_cost_one_look_a_second(look):
    now = [100.0]
    source = Shown(look)
    async with serving(source, clock=lambda: now[0]) as url:
        for _ in range(3):
            await get(url, "/api/frame")
        assert source.looks == 1
        now[0] += INTERVAL_S
        await get(url, "/api/frame")
    assert source.looks == 2


async def test_frames_that_take_long_to_make_are_made_less_often(look):
    times = iter([0.0, 2.0, 5.0, 19.9])  # it begins, has taken 2 s, is asked 3 s and 17.9 s later

    async with serving(Shown(look), clock=lambda: next(times)) as url:
        for _ in range(3):
            await get(url, "/api/frame")
    assert next(times, None) is None


async def test_a_look_that_fails_is_told_as_503_and_the_next_one_is_a_new_try(look):
    source = Shown(look)
    source.error = "the API server refused"
    async with serving(source) as url:
        status, _, body = await get(url, "/api/frame")
        assert (status, body) == (503, b'{"error":"the API server refused"}')
        about, _, _ = await get(url, "/api/claims/default/qwen3-8b")
        assert about == 503
        source.error = ""
        assert (await get(url, "/api/frame"))[0] == 200


async def test_a_claim_is_explained_as_the_command_line_explains_it(look):
    async with serving(Shown(look)) as url:
        status, _, body = await get(url, "/api/claims/default/mistral-24b")
        gone, _, said = await get(url, "/api/claims/default/nobody")
    assert status == 200
    assert b'"outcome":"waits"' in body
    assert (gone, said) == (404, b'{"error":"there is no ModelClaim default/nobody"}')


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_nothing_can_be_changed_through_it(look, method):
    async with serving(Shown(look)) as url, aiohttp.ClientSession() as session:
        for path in ("/", "/api/frame", "/api/claims/default/qwen3-8b"):
            async with session.request(method, url + path) as answer:
                assert answer.status == 405
                assert "Content-Security-Policy" in answer.headers


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:8090", 200),
        ("127.0.0.1", 200),
        ("[::1]:8090", 200),
        ("evil.example:8090", 421),
        ("127.0.0.1.evil.example", 421),
        ("", 421),
    ],
)
async def test_under_a_strangers_name_a_page_of_this_machine_says_nothing(look, host, status):
    async with serving(Shown(look)) as url:
        assert (await get(url, "/api/frame", Host=host))[0] == status


@pytest.mark.parametrize(
    "url",
    [
        "8090",
        "https://127.0.0.1:8090",
        "http://127.0.0.1",
        "http://:8090",
        "http://a:b",
        "http://a:1/x",
        "http://a:1?x",
    ],
)
def test_an_address_that_cannot_be_served_is_refused(url):
    with pytest.raises(ValueError, match="is no address for the page"):
        parse_address(url)


def test_an_address_is_read_from_a_url():
    assert parse_address("http://127.0.0.1:8090/") == Address("127.0.0.1", 8090)
    assert not parse_address("http://0.0.0.0:8090").is_local


async def test_an_address_that_is_taken_is_an_error(look):
    async with serving(Shown(look)) as url:
        other = Page(parse_address(url), Shown(look), "all")
        with pytest.raises(OSError, match="in use"):
            await other.start()
        await other.stop()
