"""How Envoy finds the tokens of an answer: which members it puts under which keys of the log's metadata.

OpenAI's completions say ``usage.prompt_tokens``; its responses, and Anthropic, say ``usage.input_tokens``. Streams are
read by another filter (``stream_usage``).
"""

from __future__ import annotations

from typing import Any, Final

Json = dict[str, Any]

NAMESPACE: Final = "aibrix.usage"
"""Of the dynamic metadata."""
PROMPT: Final = "prompt"
COMPLETION: Final = "completion"
INPUT: Final = "input"
OUTPUT: Final = "output"
TOTAL: Final = "total"
CACHE_WRITTEN: Final = "cache_written"
CACHE_READ: Final = "cache_read"
COUNTS: Final = frozenset({PROMPT, COMPLETION, INPUT, OUTPUT, TOTAL, CACHE_WRITTEN, CACHE_READ})
NO_MODEL: Final = "no_model"
"""The answer is JSON without ``model``."""
NO_JSON: Final = "no_json"
"""The answer is not JSON. Streams of events are marked so too."""

MEMBERS: Final = {
    "prompt_tokens": PROMPT,
    "completion_tokens": COMPLETION,
    "input_tokens": INPUT,
    "output_tokens": OUTPUT,
    "total_tokens": TOTAL,
    "cache_creation_input_tokens": CACHE_WRITTEN,
    "cache_read_input_tokens": CACHE_READ,
}
"""Member of a usage → key."""


def json_filter(*, names_model: bool) -> Json:
    """Reads whole JSON answers. It holds an answer back until it is complete, so it is off where answers are long.

    With ``names_model`` it marks answers without ``model``, which are failures that pass for a 200.
    """
    rules: list[Json] = [_rule(("usage", member), key) for member, key in MEMBERS.items()]
    model: Json = {
        "selectors": [{"key": "model"}],
        # Of a rule without it Envoy 1.40 never looks at on_missing.
        "on_present": {"metadata_namespace": NAMESPACE, "key": "model"},
        "on_missing": {"metadata_namespace": NAMESPACE, "key": NO_MODEL, "value": True},
        "on_error": {"metadata_namespace": NAMESPACE, "key": NO_JSON, "value": True},
    }
    return {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.json_to_metadata.v3.JsonToMetadata",
        "response_rules": {
            "allow_content_types_regex": {"regex": r"application/json.*"},
            "rules": [*rules, model] if names_model else rules,
        },
    }


def _rule(path: tuple[str, ...], key: str) -> Json:
    return {
        "selectors": [{"key": part} for part in path],
        "on_present": {"metadata_namespace": NAMESPACE, "key": key, "type": "NUMBER"},
    }
