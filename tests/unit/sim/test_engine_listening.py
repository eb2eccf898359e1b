"""Where an engine listens that is told to listen everywhere."""

import pytest

from aibrix_operator.sim.engine import http

POD = {"AIBRIX_SIM_LISTEN": "127.0.0.1,127.17.1.2"}


@pytest.mark.parametrize(
    ("host", "environ", "addresses"),
    [
        pytest.param("0.0.0.0", {}, ["0.0.0.0"], id="without a Pod of its own everywhere is the machine"),
        pytest.param("0.0.0.0", POD, ["127.0.0.1", "127.17.1.2"], id="everywhere is all of the Pod"),
        pytest.param("::", POD, ["127.0.0.1", "127.17.1.2"], id="also in the other family"),
        pytest.param("127.17.1.2", POD, ["127.17.1.2"], id="one address is that address"),
        pytest.param("0.0.0.0", {"AIBRIX_SIM_LISTEN": ""}, ["0.0.0.0"], id="nothing named"),
    ],
)
def test_everywhere_is_all_addresses_of_the_pod(host, environ, addresses):
    assert http.listening_addresses(host, environ) == addresses


async def test_an_engine_answers_on_each_of_its_addresses():
    router = http.Router()

    async def health(_):
        return http.Response(content_type=None)

    router.add("GET", "/health", health)
    server = await http.serve(router, ["127.0.0.1", "127.0.0.2"], 0)
    try:
        assert sorted(s.getsockname()[0] for s in server.sockets) == ["127.0.0.1", "127.0.0.2"]
    finally:
        server.close()
