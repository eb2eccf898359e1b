"""Structural CRD schemas from pydantic models.

``pydantic`` writes JSON Schema 2020 with references; an API server wants structural OpenAPI v3 without them. This
module is the bridge, used by ``api.manifests`` only. ``kube-custom-resource`` was looked at: it marks every map as
preserve-unknown-fields and forces an Age column last, both wrong for AIBrix's schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, JsonValue
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema


class Contract(BaseModel):
    """Base of every part of a kind: frozen, camelCase on the wire, unknown fields dropped as API servers prune them."""

    model_config = ConfigDict(
        frozen=True, alias_generator=to_camel, populate_by_name=True, extra="ignore", use_attribute_docstrings=True
    )


# Compared by identity: typing hashes annotations, and the keys are a dict.
@dataclass(frozen=True, slots=True, eq=False)
class Extend:
    """Adds keys to a field's or model's schema, such as CEL rules: ``Annotated[str, Extend({...})]``."""

    keys: Mapping[str, Any]

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {**handler(core), **self.keys}


def rule(expression: str, message: str) -> dict[str, JsonValue]:
    """One CEL rule of ``x-kubernetes-validations``."""
    return {"rule": expression, "message": message}


def rule_unless(unchanged: str, expression: str, message: str) -> dict[str, JsonValue]:
    """A rule that an update need not meet where ``unchanged``, an expression over ``old`` and ``self``, holds: so a
    finalizer still comes off an object that has always broken it.

    The API server lets unchanged values be by itself, but not where something below keeps unknown fields (seen on
    1.37): those it cannot compare. In an equation ``self`` comes first: only its size is known when costs are judged.
    """
    was = unchanged.replace("old.", "oldSelf.value().")
    return {
        "rule": f"(oldSelf.hasValue() && {was}) || ({expression})",
        "message": message,
        "optionalOldSelf": True,
    }


Int32 = Annotated[int, Extend({"format": "int32"})]
Int64 = Annotated[int, Extend({"format": "int64"})]


@dataclass(frozen=True, slots=True)
class PrinterColumn:
    """One column of ``kubectl get``; ``type`` is an OpenAPI type or ``date``."""

    name: str
    type: str
    json_path: str
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Scale:
    """The JSON paths of the scale subresource."""

    spec_path: str
    status_path: str
    selector_path: str


@dataclass(frozen=True, slots=True)
class Kind:
    """All that a CustomResourceDefinition says about one kind."""

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    model: type[BaseModel]
    columns: tuple[PrinterColumn, ...]
    short_names: tuple[str, ...] = ()
    scale: Scale | None = None


# Handled one by one below, or (propertyNames) illegal in a structural schema.
_REWRITTEN = frozenset({"title", "$defs", "additionalProperties", "properties", "items", "propertyNames"})


def structural(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """``schema`` with references inlined, titles dropped and ``X | None`` written as plain optional ``X``.

    An absent optional field is left out on the wire, so ``null`` stays illegal, as in Go's ``omitempty``.
    """
    if "$ref" in schema:
        target = definitions[schema["$ref"].removeprefix("#/$defs/")]
        return structural({**target, **{k: v for k, v in schema.items() if k != "$ref"}}, definitions)
    if "anyOf" in schema and not schema.get("x-kubernetes-int-or-string"):
        [only] = [choice for choice in schema["anyOf"] if choice.get("type") != "null"]
        return structural({**only, **{k: v for k, v in schema.items() if k not in ("anyOf", "default")}}, definitions)
    out = {k: v for k, v in schema.items() if k not in _REWRITTEN}
    if "const" in out:  # not in an API server's vocabulary, which drops it in silence
        out["enum"] = [out.pop("const")]
    if isinstance(out.get("description"), str):
        out["description"] = " ".join(out["description"].replace("``", "").split())
    if not out.get("default", True):  # what absence means anyway: 0, "", [], {}, null
        del out["default"]
    if "properties" in schema:
        out["properties"] = {name: structural(value, definitions) for name, value in schema["properties"].items()}
    if isinstance(schema.get("additionalProperties"), Mapping):
        out["additionalProperties"] = structural(schema["additionalProperties"], definitions)
    if "items" in schema:
        out["items"] = structural(schema["items"], definitions)
    return out


def custom_resource_definition(kind: Kind) -> dict[str, Any]:
    """The whole manifest of ``kind``, ready to be written as YAML."""
    raw = kind.model.model_json_schema(by_alias=True)
    schema = structural(raw, raw.get("$defs", {}))
    columns = [
        {"name": c.name, "type": c.type, "jsonPath": c.json_path, **({"priority": c.priority} if c.priority else {})}
        for c in kind.columns
    ]
    version = {
        "name": kind.version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}, **_scale(kind.scale)},
        "additionalPrinterColumns": columns,
        "schema": {"openAPIV3Schema": schema},
    }
    names = {
        "kind": kind.kind,
        "listKind": f"{kind.kind}List",
        "plural": kind.plural,
        "singular": kind.singular,
        **({"shortNames": list(kind.short_names)} if kind.short_names else {}),
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{kind.group}"},
        "spec": {"group": kind.group, "names": names, "scope": "Namespaced", "versions": [version]},
    }


def _scale(scale: Scale | None) -> dict[str, Any]:
    if scale is None:
        return {}
    return {
        "scale": {
            "specReplicasPath": scale.spec_path,
            "statusReplicasPath": scale.status_path,
            "labelSelectorPath": scale.selector_path,
        }
    }
