"""What a file of tests shows about rights: the operator of its control plane has none too few and none too many."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import pytest

from aibrix_operator import roles
from aibrix_operator.cluster.grant import Grant
from aibrix_operator.operator.grants import GRANTS
from aibrix_operator.sandbox import rights_audit
from aibrix_operator.sandbox.control_plane import AUDIT_LOG, ControlPlane
from aibrix_operator.sandbox.rights_audit import Right


def assert_least_rights(
    request: pytest.FixtureRequest,
    plane: ControlPlane,
    needed: Iterable[Grant],
    *,
    options: Collection[str] = (),
    out_of_reach: Collection[Right] = (),
) -> None:
    """Of all that the operator asked ``plane`` for, nothing was denied, and of ``needed`` everything was used.

    For the last test of a file. ``options``: as the control plane's roles were made with. ``out_of_reach``: what no
    test can bring about; each has its reason beside it.
    """
    tests = {name for name in vars(request.module) if name.startswith("test_")}
    chosen = {item.originalname for item in request.session.items if getattr(item, "module", None) is request.module}
    if tests != chosen:
        pytest.skip("only all tests of the file together use all rights")
    found = rights_audit.read_logs([plane.directory / AUDIT_LOG], {})["operator"]
    assert not found.denied, f"denied: {dict(found.denied)}"
    mine = roles.given(needed, options)
    assert set(out_of_reach) <= rights_audit.granted(mine)
    unused = set(rights_audit.unused(found, mine)) - set(out_of_reach)
    assert not unused, f"granted and never used: {sorted(unused)}"
    foreign = found.allowed.keys() - rights_audit.granted(roles.given(GRANTS["operator"], options))
    assert not foreign, f"allowed by a role that is not ours: {sorted(foreign)}"
