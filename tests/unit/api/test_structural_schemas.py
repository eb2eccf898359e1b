"""Schemas hold only what an API server knows: it drops the rest in silence, and then nothing is checked."""

from typing import Literal

import pytest

from aibrix_operator import definitions
from aibrix_operator.api import schema

KNOWN = {
    "additionalProperties", "default", "description", "enum", "exclusiveMaximum", "exclusiveMinimum", "format", "items",
    "maxItems", "maxLength", "maxProperties", "maximum", "minItems", "minLength", "minProperties", "minimum",
    "multipleOf", "nullable", "oneOf", "anyOf", "allOf", "not", "pattern", "properties", "required", "type",
    "uniqueItems", "x-kubernetes-embedded-resource", "x-kubernetes-int-or-string", "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type", "x-kubernetes-map-type", "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-validations",
}  # fmt: skip
"""JSONSchemaProps of apiextensions/v1."""


class Choice(schema.Contract):
    mode: Literal["Preferred"] = "Preferred"


def test_a_single_choice_is_an_enumeration_of_one():
    written = schema.structural(Choice.model_json_schema(by_alias=True), {})
    assert written["properties"]["mode"] == {"type": "string", "enum": ["Preferred"], "default": "Preferred"}


def words(node, where):
    """Every keyword of a schema, with its path."""
    for key, value in node.items():
        yield key, where
        if key == "properties":
            for name, inner in value.items():
                yield from words(inner, f"{where}.{name}")
        elif key in ("items", "additionalProperties", "not") and isinstance(value, dict):
            yield from words(value, f"{where}.{key}")


@pytest.mark.parametrize("definition", definitions.find(), ids=lambda found: found["spec"]["names"]["plural"])
def test_every_definition_uses_known_words_only(definition):
    for version in definition["spec"]["versions"]:
        found = words(version["schema"]["openAPIV3Schema"], "")
        assert [(key, where) for key, where in found if key not in KNOWN] == []
