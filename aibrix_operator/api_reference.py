"""A kind's reference page, from its CRD. Used by ``manifests``; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_HEADER = "<!-- Written by `make manifests` from the models in aibrix_operator/api; edit there. -->\n"
_BOUNDS = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "maxProperties": "at most {} entries",
    "pattern": "matches `{}`",
}


def render(definition: Mapping[str, Any]) -> str:
    """The page of a CustomResourceDefinition, as Markdown."""
    spec = definition["spec"]
    [version] = [v for v in spec["versions"] if v["storage"]]
    names, schema = spec["names"], version["schema"]["openAPIV3Schema"]
    short = f", short `{'`, `'.join(names['shortNames'])}`" if names.get("shortNames") else ""
    lines = [
        _HEADER,
        f"# {names['kind']}",
        "",
        f"`{spec['group']}/{version['name']}`, {spec['scope'].lower()}, `kubectl get {names['plural']}`{short}.",
        "",
        str(schema.get("description", "")),
        "",
        *_rules("Rules of the whole object", schema),
    ]
    for part in ("spec", "status"):
        if part in schema["properties"]:
            lines += _part(part, schema["properties"][part])
    return "\n".join(lines).rstrip() + "\n"


def _part(name: str, schema: Mapping[str, Any]) -> list[str]:
    lines = [f"## {name}", "", str(schema.get("description", "")), "", "| Field | Type | Meaning |", "|---|---|---|"]
    rules: list[tuple[str, str]] = [("", rule["message"]) for rule in schema.get("x-kubernetes-validations", ())]
    for path, field, is_required in _fields(schema, ""):
        lines.append(f"| `{path}` | {_type(field)} | {_meaning(field, is_required)} |")
        rules += [(path, rule["message"]) for rule in field.get("x-kubernetes-validations", ())]
    lines.append("")
    if rules:
        lines += [f"### Rules of {name}", "", "The API server refuses what breaks one of these.", ""]
        lines += [f"- `{path}`: {text}" if path else f"- {text}" for path, text in rules] + [""]
    return lines


def _rules(title: str, schema: Mapping[str, Any]) -> Sequence[str]:
    rules = schema.get("x-kubernetes-validations", ())
    return (f"{title}:", "", *(f"- {rule['message']}" for rule in rules), "") if rules else ()


def _fields(schema: Mapping[str, Any], above: str) -> Iterator[tuple[str, Mapping[str, Any], bool]]:
    """(path, schema, whether it must be there) of every field, each before what is in it."""
    required = schema.get("required", ())
    for name, field in schema.get("properties", {}).items():
        path = f"{above}{name}"
        yield path, field, name in required
        inner = field.get("items", field)
        if inner is not field:
            path += "[]"
        elif isinstance(field.get("additionalProperties"), Mapping):
            inner, path = field["additionalProperties"], f"{path}.*"
        yield from _fields(inner, f"{path}.")


def _type(field: Mapping[str, Any]) -> str:
    if field.get("x-kubernetes-int-or-string"):
        return "quantity"
    if "items" in field:
        return f"list of {_type(field['items'])}"
    if isinstance(field.get("additionalProperties"), Mapping):
        return f"map to {_type(field['additionalProperties'])}"
    return str(field.get("type", "any"))


def _meaning(field: Mapping[str, Any], is_required: bool) -> str:
    text = str(field.get("description", "")).strip()
    inner = field.get("items", field)
    facts = ["**required**"] if is_required else []
    if "default" in field:
        facts.append(f"default `{_plain(field['default'])}`")
    if "enum" in inner:
        facts.append("one of " + ", ".join(_choice(value) for value in inner["enum"]))
    facts += [_bound(told, field[key]) for key, told in _BOUNDS.items() if key in field]
    return _cell(" ".join(filter(None, (text, f"({'; '.join(facts)})" if facts else ""))))


def _choice(value: object) -> str:
    return f"`{_plain(value)}`" if value != "" else "empty"


def _bound(told: str, limit: object) -> str:
    """In the singular for 1."""
    singular = told.replace("entries", "entry").removesuffix("s") if limit == 1 else told
    return singular.format(limit)


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
