"""TLS for clients: Envoy shows the files' certificate, and a renewed one without a restart."""

import asyncio
import os
import ssl

import pytest
from gateway_engine import echo, running_engine
from gateway_envoy import forward, stage

from aibrix_operator.gateway.envoy.settings import Tls
from aibrix_operator.sandbox.certificates import Authority

CHAT = {"model": "m", "messages": []}


def renew(authority, folder, generation):
    """As a kubelet replaces a Secret's files: a link to a new folder, put into the old one's place at once."""
    new = folder / f"..{generation}"
    new.mkdir()
    authority.server(["gateway"], ["127.0.0.1"]).write(new / "tls")
    link = folder / "..new"
    link.symlink_to(new.name)
    os.replace(link, folder / "..data")


async def shown(port, trust):
    """The serial number of the certificate that a new connection is shown."""
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust, server_hostname="gateway")
    certificate = writer.get_extra_info("ssl_object").getpeercert()
    writer.close()
    return certificate["serialNumber"]


@pytest.fixture
def certificates(tmp_path):
    authority = Authority("clients-trust-it")
    renew(authority, tmp_path, 1)
    for name in ("tls.crt", "tls.key"):
        (tmp_path / name).symlink_to(f"..data/{name}")
    trust = ssl.create_default_context(cadata=authority.certificate.decode())
    trust.minimum_version = ssl.TLSVersion.TLSv1_2
    return authority, tmp_path, trust


async def test_clients_are_served_over_tls_and_a_renewed_certificate_is_taken_up(certificates):
    authority, folder, trust = certificates
    tls = Tls(folder / "tls.crt", folder / "tls.key")
    async with running_engine() as engine:
        engine.reply = echo
        async with stage(lambda _: forward(engine.address), tls=tls) as played:
            url = played.url.replace("http://", "https://") + "/v1/chat/completions"
            async with played.client.post(url, json=CHAT, ssl=trust, server_hostname="gateway") as answer:
                assert answer.status == 200
            port = played.gateway.settings.listen.port
            before = await shown(port, trust)
            renew(authority, folder, 2)
            async with asyncio.timeout(20):
                while await shown(port, trust) == before:  # noqa: ASYNC110 - Envoy's, not ours
                    await asyncio.sleep(0.02)


async def test_plain_http_is_not_answered_where_there_is_a_certificate(certificates):
    _, folder, _ = certificates
    async with stage(lambda _: forward("127.0.0.1:1"), tls=Tls(folder / "tls.crt", folder / "tls.key")) as played:
        reader, writer = await asyncio.open_connection("127.0.0.1", played.gateway.settings.listen.port)
        writer.write(b"GET /v1/models HTTP/1.1\r\nhost: gateway\r\n\r\n")
        assert b"HTTP/" not in await reader.read()
        writer.close()


async def test_old_versions_of_tls_are_refused(certificates):
    _, folder, trust = certificates
    trust.maximum_version = ssl.TLSVersion.TLSv1_2
    async with stage(lambda _: forward("127.0.0.1:1"), tls=Tls(folder / "tls.crt", folder / "tls.key")) as played:
        assert await shown(played.gateway.settings.listen.port, trust)
        with pytest.warns(DeprecationWarning, match="TLSv1"):
            trust.minimum_version = trust.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await shown(played.gateway.settings.listen.port, trust)
