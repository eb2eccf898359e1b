"""Claims as YAML files declare them, checked as the API server and the controller would check them. Pure.

``kubectl apply`` refuses unknown fields, and so does this. What the controller would not place for its declaration
alone (a missing or unusable ``perGPU``, engine arguments that cannot work) is an error of the file here as well.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import yaml
from pydantic import ValidationError

from aibrix_operator.api import names
from aibrix_operator.api.conditions import bounded
from aibrix_operator.api.modelclaim import MAX_NAME, ModelClaimSpec
from aibrix_operator.modelclaim.parse import OLDEST, parse_claim
from aibrix_operator.modelclaim.snapshot import Claim

_KIND = "ModelClaim"
_API_VERSION = f"{names.MODEL_GROUP}/{names.MODEL_VERSION}"
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_UNION_MEMBERS = frozenset({"int", "str"})
"""What pydantic appends to the place of a value that may be of either type."""


class UnusableFiles(ValueError):
    """The files cannot be planned. ``problems`` has a sentence for each, with file, document and field."""

    def __init__(self, problems: Sequence[str]) -> None:
        # A file's own text is in it, and this goes to a terminal.
        self.problems = tuple(bounded(problem) for problem in problems)
        super().__init__("\n".join(self.problems))


@dataclass(frozen=True, slots=True)
class Source:
    """One file: its name as the user gave it, and its text."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Declared:
    """All claims of all files, in the order of documents, which stands for their age."""

    claims: tuple[Claim, ...]
    skipped: int = 0
    """Objects of other kinds, which nothing is planned for."""


@dataclass(frozen=True, slots=True)
class _Object:
    where: str
    body: Any


def read_claims(sources: Sequence[Source]) -> Declared:
    """Every ModelClaim of the files. Raises UnusableFiles with all that is wrong, not only the first."""
    problems: list[str] = []
    claims: list[Claim] = []
    skipped = 0
    for source in sources:
        for found in _objects(source, problems):
            if not isinstance(found.body, Mapping) or not isinstance(found.body.get("kind"), str):
                problems.append(f"{found.where}: this is no Kubernetes object: kind is missing")
            elif found.body["kind"] != _KIND:
                skipped += 1
            elif (claim := _claim(found, len(claims), problems)) is not None:
                claims.append(claim)
    problems += _among_each_other(claims)
    if not problems and not claims:
        problems.append(f"{', '.join(s.name for s in sources)}: there is no {_KIND} in it")
    if problems:
        raise UnusableFiles(problems)
    return Declared(tuple(claims), skipped)


def _objects(source: Source, problems: list[str]) -> Iterator[_Object]:
    """The documents of a file, Lists taken apart; empty documents are nothing."""
    number = 0
    try:
        for number, parsed in enumerate(yaml.safe_load_all(source.text), start=1):
            where = f"{source.name}: document {number}"
            document = _as_json(parsed, where, problems)
            is_list = isinstance(document, Mapping) and str(document.get("kind", "")).endswith("List")
            if is_list and isinstance(document.get("items"), list):
                for position, item in enumerate(document["items"], start=1):
                    yield _Object(f"{where}, item {position}", item)
            elif document is not None:
                yield _Object(where, document)
    except yaml.YAMLError as error:
        problems.append(f"{source.name}: document {number + 1}: {_yaml_problem(error)}")


def _as_json(parsed: Any, where: str, problems: list[str]) -> Any:
    """The document as kubectl sends it: keys are text, and so are YAML's dates. None when JSON cannot say it."""
    try:
        return json.loads(json.dumps(parsed, default=str))
    except (TypeError, ValueError, RecursionError) as error:
        problems.append(f"{where}: it has no JSON form: {error}")
        return None


def _yaml_problem(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}"
    return f"this is no YAML: {error}"


def _claim(found: _Object, age: int, problems: list[str]) -> Claim | None:
    """The claim, or None and what is wrong with it among the problems."""
    body = found.body
    metadata = body.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    where = f"{found.where} ({_KIND} {name})" if isinstance(name, str) else f"{found.where} ({_KIND})"
    wrong = [*_wrong_metadata(body, name), *_wrong_spec(body.get("spec"))]
    if wrong:
        problems += [f"{where}: {text}" for text in wrong]
        return None
    claim = parse_claim({**body, "status": None})
    if claim.seat_error:
        problems.append(f"{where}: {claim.seat_error}")
    if claim.engine_error:
        problems.append(f"{where}: spec.engineConfig.args: {claim.engine_error}")
    if claim.seat_error or claim.engine_error:
        return None
    # A document's place stands for its age, and for the UID that an API server would give.
    created_at = OLDEST + timedelta(seconds=age)
    return dataclasses.replace(claim, uid=f"document-{age}", created_at=created_at, deleting_since=None)


def _wrong_metadata(body: Mapping[str, Any], name: Any) -> Iterator[str]:
    if body.get("apiVersion") != _API_VERSION:
        yield f"apiVersion is {body.get('apiVersion')!r}, and not {_API_VERSION!r}"
    if not isinstance(name, str) or not name:
        yield "metadata.name is missing"
    elif len(name) > MAX_NAME:
        yield f"metadata.name must be at most {MAX_NAME} characters: it becomes part of annotation keys"
    elif not _NAME.fullmatch(name):
        yield "metadata.name must consist of lower-case letters, digits, '-' and '.', and end in letters or digits"


def _wrong_spec(spec: Any) -> Iterator[str]:
    try:
        # As JSON, where strict means what it means to the API server: a list is a list, and "1" is no number.
        ModelClaimSpec.model_validate_json(json.dumps(spec), strict=True, extra="forbid")
    except ValidationError as error:
        told = set()
        for problem in error.errors(include_url=False, include_input=False):
            place = [str(part) for part in problem["loc"]]
            if place and place[-1] in _UNION_MEMBERS and len(place) > 1:
                field, text = ".".join(("spec", *place[:-1])), "should be a quantity such as 30Gi"
            else:
                field, text = ".".join(("spec", *place)), _words(problem["type"], problem["msg"])
            if field not in told:
                told.add(field)
                yield f"{field}: {text}"
        return
    for number, expression in enumerate((spec["podSelector"].get("matchExpressions")) or ()):
        wants_values = expression["operator"] in ("In", "NotIn")
        if wants_values != bool(expression.get("values")):
            yield (
                f"spec.podSelector.matchExpressions.{number}: "
                "In and NotIn need values, Exists and DoesNotExist take none"
            )


def _words(kind: str, message: str) -> str:
    """Pydantic's sentence, but for the two that are about the field and not its value."""
    return {"missing": "is missing", "extra_forbidden": "there is no such field"}.get(kind, message)


def _among_each_other(claims: Sequence[Claim]) -> Iterator[str]:
    """What each document alone does not show."""
    seen: set[str] = set()
    for claim in claims:
        if claim.name in seen:
            yield f"ModelClaim {claim.name} is declared twice"
        seen.add(claim.name)
    namespaces = sorted({c.namespace or "default" for c in claims})
    if len(namespaces) > 1:
        yield f"the claims are of {len(namespaces)} namespaces ({', '.join(namespaces)}), which share no Pod: plan each"
