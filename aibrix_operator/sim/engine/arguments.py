"""The engines' command lines, as far as a simulation needs them.

A runtime agent passes whatever flags a claim lists, so a flag without a meaning here is accepted like a real engine
accepts it; one that has a meaning is checked, and a word that belongs to no flag is refused.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass


class UsageError(ValueError):
    """The command line is wrong; the engine prints it and exits with code 2, as argparse does."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """What the command line says; None leaves a figure to the profile."""

    kind: str  # "vllm" or "sglang"
    model: str
    served_names: tuple[str, ...]
    host: str
    port: int
    max_model_len: int | None
    max_running_requests: int | None
    cards: int  # tensor-parallel times pipeline-parallel size
    max_loras: int
    enable_lora: bool
    memory_saver: bool = False  # of SGLang: whether it can release its memory
    weights_backup: bool = False  # of SGLang: whether its weights survive that

    @property
    def name(self) -> str:
        """The name in answers and metrics."""
        return self.served_names[0]


_ALIASES = {
    "vllm": {"-tp": "tensor-parallel-size", "-pp": "pipeline-parallel-size"},
    "sglang": {
        "model-path": "model",
        "context-length": "max-model-len",
        "max-running-requests": "max-num-seqs",
        "tp-size": "tensor-parallel-size",
        "tp": "tensor-parallel-size",
        "pp-size": "pipeline-parallel-size",
        "max-loras-per-batch": "max-loras",
    },
}
_DEFAULT_PORT = {"vllm": "8000", "sglang": "30000"}
_NUMBER = re.compile(r"(\d+)([kKmM]?)")
_FACTOR = {"": 1, "k": 1000, "m": 1000_000, "K": 1024, "M": 1024**2}  # vLLM's readable integers: 1k and 1K differ


def parse(words: Sequence[str]) -> Arguments:
    """Read ``<kind> <flags>``. Raises UsageError."""
    if not words or words[0] not in _ALIASES:
        raise UsageError(f"the first word must be one of {', '.join(_ALIASES)}")
    kind, flags = words[0], _flags(words[0], words[1:])
    if not (model := " ".join(flags.get("model", []))):
        raise UsageError("the following arguments are required: --model")
    return Arguments(
        kind=kind,
        model=model,
        served_names=tuple(flags.get("served-model-name") or [model]),
        host=" ".join(flags.get("host", [])) or "0.0.0.0",
        port=_integer(flags, "port", _DEFAULT_PORT[kind]),
        max_model_len=_integer(flags, "max-model-len") if "max-model-len" in flags else None,
        max_running_requests=_integer(flags, "max-num-seqs") if "max-num-seqs" in flags else None,
        cards=_integer(flags, "tensor-parallel-size", "1") * _integer(flags, "pipeline-parallel-size", "1"),
        max_loras=_integer(flags, "max-loras", "1"),
        enable_lora="enable-lora" in flags,
        memory_saver="enable-memory-saver" in flags,
        weights_backup="enable-weights-cpu-backup" in flags,
    )


def _flags(kind: str, words: Sequence[str]) -> dict[str, list[str]]:
    """Flag -> its values; underscores and dashes mean the same, the last mention of a flag counts."""
    flags: dict[str, list[str]] = {}
    values: list[str] | None = None
    for word in words:
        if word.startswith("--") or word in _ALIASES[kind]:
            name, equals, value = word.partition("=")
            name = name.removeprefix("--").replace("_", "-")
            values = flags[_ALIASES[kind].get(name, name)] = [value] if equals else []
        elif values is None:
            raise UsageError(f"unrecognized arguments: {word}")
        else:
            values.append(word)
    return flags


def _integer(flags: dict[str, list[str]], name: str, default: str = "") -> int:
    text = " ".join(flags.get(name, [default]))
    number = _NUMBER.fullmatch(text)
    if number is None or int(number[1]) == 0:
        raise UsageError(f"argument --{name}: invalid positive integer value: {text!r}")
    return int(number[1]) * _FACTOR[number[2]]
