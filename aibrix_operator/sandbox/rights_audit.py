"""Compare what components may ask of the API server with what its audit log says they asked.

``python -m aibrix_operator.sandbox.rights_audit LOG… [--account NAME=COMPONENT…] [--strict]`` prints both, and fails
for a denied request; with ``--strict`` also for a right that was not used. Names are of ServiceAccounts; in a sandbox
they are the components' own. A sandbox that ends leaves its log in the folder that ``AIBRIX_AUDIT_DIR`` names, if that
was set when it started.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

import orjson

from aibrix_operator import roles
from aibrix_operator.cluster.grant import Grant
from aibrix_operator.operator.grants import GRANTS
from aibrix_operator.sandbox.control_plane import AUDIT_LOG

POLICY: Final = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - {level: Metadata, userGroups: ["system:serviceaccounts"]}
  - {level: LEVEL, users: USERS}
  - {level: None}
"""
_ACCOUNT: Final = "system:serviceaccount:"
# A tool that a person runs with any credentials says which one it is; what it is denied is what it is there to tell.
_TOOL: Final = re.compile(r"aibrix-operator/\S+ \(\w+\)")
# Every authenticated user may ask what it may do (the role system:basic-user).
_EVERYBODYS: Final = frozenset({"selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews"})

Right: TypeAlias = tuple[str, str, str]
"""Group, resource with its subresource, verb."""


@dataclass(frozen=True, slots=True)
class Used:
    """What one component asked for."""

    allowed: Counter[Right] = field(default_factory=Counter)
    denied: Counter[Right] = field(default_factory=Counter)


def folder() -> Path | None:
    """Where logs are kept; None: none is written."""
    own = os.environ.get("AIBRIX_AUDIT_DIR")
    return Path(own) if own else None


def keep(directory: Path, name: str) -> None:
    """Copy the log of a control plane that has ended to where logs are kept; ``name`` tells whose it is."""
    log, kept = directory / AUDIT_LOG, folder()
    if kept is not None and log.exists():
        kept.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(log, kept / f"{name}-{time.time_ns()}.log")


def policy(users: Iterable[str]) -> str:
    """The API server's audit policy for these ``users`` and every ServiceAccount, one line a request."""
    named = list(users)
    # A rule with an empty list is about everybody.
    return POLICY.replace("LEVEL", "Metadata" if named else "None").replace("USERS", orjson.dumps(named).decode())


def read(lines: Iterable[bytes], accounts: Mapping[str, str]) -> dict[str, Used]:
    """Component → what it used. ``accounts``: a ServiceAccount's name → its component; others are passed over."""
    found = {component: Used() for component in accounts.values()}
    for line in lines:
        try:
            event = orjson.loads(line)
        except orjson.JSONDecodeError:  # the last line, which is being written
            continue
        user = str((event.get("impersonatedUser") or event.get("user") or {}).get("username", ""))
        is_component = user.startswith(_ACCOUNT) and not _TOOL.fullmatch(str(event.get("userAgent", "")))
        component = accounts.get(user.rpartition(":")[2]) if is_component else None
        right = _right(event)
        if component is not None and right is not None:
            is_denied = (event.get("annotations") or {}).get("authorization.k8s.io/decision") == "forbid"
            (found[component].denied if is_denied else found[component].allowed)[right] += 1
    return found


def read_logs(logs: Iterable[Path], accounts: Mapping[str, str]) -> dict[str, Used]:
    """What all of these say together; ``accounts`` beside those that are named as their components are."""
    lines = (line for log in logs for line in log.read_bytes().splitlines())
    return read(lines, {name: name for name in GRANTS} | dict(accounts))


def _right(event: Mapping[str, Any]) -> Right | None:
    """None for what names no resource, such as discovery, and for everybody's rights."""
    asked = event.get("objectRef") or {}
    resource = asked.get("resource")
    if not resource or resource in _EVERYBODYS:
        return None
    subresource = asked.get("subresource")
    return asked.get("apiGroup", ""), f"{resource}/{subresource}" if subresource else resource, event["verb"]


def granted(grants: Iterable[Grant]) -> set[Right]:
    """Each pair of verb and resource."""
    return {(grant.group, grant.resource, verb) for grant in grants for verb in grant.verbs}


def unused(used: Used, grants: Iterable[Grant]) -> list[Right]:
    """What is granted and was never asked for, of what a request can ask for. ``grants`` are those that were given.

    A right on ``…/finalizers`` is asked for by admission alone (OwnerReferencesPermissionEnforcement, as OpenShift has
    it), when somebody else's object is made with an owner that it blocks: no request names it.
    """
    return sorted(right for right in granted(grants) - used.allowed.keys() if not right[1].endswith("/finalizers"))


def report(found: Mapping[str, Used], grants: Mapping[str, tuple[Grant, ...]]) -> str:
    """A line for each component, and one for each right that is missing or too many.

    What only a choice in the values gives is not missed.
    """
    lines = []
    for component, used in found.items():
        its = roles.given(grants[component])
        many = unused(used, its)
        lines.append(f"{component}: {roles.count(its)} granted, {roles.count(its) - len(many)} of them used")
        lines += [f"  denied {count} times: {_words(right)}" for right, count in sorted(used.denied.items())]
        lines += [f"  granted and not used: {_words(right)}" for right in many]
    return "\n".join([*lines, roles.counts(grants)])


def is_denied(found: Mapping[str, Used]) -> bool:
    """Whether any request was denied."""
    return any(used.denied for used in found.values())


def is_unused(found: Mapping[str, Used], grants: Mapping[str, tuple[Grant, ...]]) -> bool:
    """Whether anything is granted by default that was not used."""
    return any(unused(used, roles.given(grants[component])) for component, used in found.items())


def _words(right: Right) -> str:
    group, resource, verb = right
    return f"{verb} {resource}{f'.{group}' if group else ''}"


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="rights_audit", description=__doc__.split("\n\n")[0])
    parser.add_argument("logs", nargs="+", type=Path, metavar="LOG")
    parser.add_argument("--account", action="append", default=[], metavar="NAME=COMPONENT")
    parser.add_argument("--strict", action="store_true")
    arguments = parser.parse_args(words)
    found = read_logs(arguments.logs, dict(text.split("=", 1) for text in arguments.account))
    sys.stdout.write(f"{report(found, GRANTS)}\n")
    return 1 if is_denied(found) or (arguments.strict and is_unused(found, GRANTS)) else 0


if __name__ == "__main__":
    sys.exit(main())
