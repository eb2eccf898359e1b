"""Addresses of local nodes: within one range that this machine uses for nothing else."""

from __future__ import annotations

import ipaddress
import shutil

import pytest

from e2e.nodes import network


def test_every_address_of_a_cluster_lies_in_its_range_and_none_twice():
    made = network.Addresses(200)
    services, pods = ipaddress.ip_network(made.services), ipaddress.ip_network(made.pods)
    wire = ipaddress.ip_network("10.200.0.0/24")
    whole = ipaddress.ip_network(made.whole)
    assert all(part.subnet_of(whole) for part in (services, pods, wire))
    assert not services.overlaps(pods)
    assert not wire.overlaps(pods)
    assert ipaddress.ip_address(made.dns_service) in services
    assert {ipaddress.ip_address(each) in wire for each in (made.host, made.node(0), made.node(1))} == {True}
    assert all(ipaddress.ip_network(made.pods_of(index)).subnet_of(pods) for index in range(10))


def test_a_range_that_a_route_touches_is_left_alone(monkeypatch):
    free = 177
    routes = "\n".join(f"10.{octet}.3.0/24 dev eth0" for octet in range(160, 250) if octet != free)
    monkeypatch.setattr(network, "_run", lambda *_: f"default via 192.0.2.1 dev eth0\n{routes}\n")
    assert network.choose() == network.Addresses(free)


def test_a_machine_without_a_free_range_is_told():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(network, "_run", lambda *_: "10.0.0.0/8 dev eth0\n")
        with pytest.raises(network.NetworkError, match=r"from 10\.160 to 10\.249"):
            network.choose()


@pytest.mark.skipif(shutil.which("ip") is None, reason="iproute2 is not installed")
def test_what_ip_says_is_in_the_error():
    with pytest.raises(network.NetworkError, match="no-such-device"):
        network._run("ip", "link", "show", "no-such-device")
