"""The chart's roles hold for all that happened in the other stories, which are told before this one."""

from __future__ import annotations

import pytest

from aibrix_operator import roles
from aibrix_operator.operator.grants import GRANTS
from aibrix_operator.sandbox import rights_audit
from e2e.cluster.conftest import FirstInstall
from e2e.cluster.release import NAME, Releases
from e2e.nodes.provider import Cluster

ACCOUNTS = {NAME: "operator", f"{NAME}-gateway": "gateway"}


def test_no_request_of_operator_and_gateway_was_denied(
    cluster: Cluster, releases: Releases, first_install: FirstInstall
):
    if cluster.audit_log is None:
        pytest.skip("kind's API server writes no audit log")
    found = rights_audit.read(releases.asked(), ACCOUNTS)
    print(rights_audit.report(found, GRANTS))
    for component, used in found.items():
        assert not used.denied, component
        assert used.allowed, component
        assert used.allowed.keys() <= rights_audit.granted(roles.given(GRANTS[component])), component
