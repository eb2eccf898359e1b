"""How many GPUs of a Pod a vLLM claim runs on, read from its engine arguments.

Called for vLLM claims only; another engine counts as running on one GPU, and its arguments are not read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

GPU_MEMORY_UTILIZATION = "--gpu-memory-utilization"
TENSOR_PARALLEL_SIZE = "--tensor-parallel-size"
PIPELINE_PARALLEL_SIZE = "--pipeline-parallel-size"
DATA_PARALLEL_SIZE = "--data-parallel-size"

_INTEGER = re.compile(r"\+?[0-9]+")
_MAX_INT64 = (1 << 63) - 1
_MAX_INT64_DIGITS = len(str(_MAX_INT64))
_SHOWN_CHARACTERS = 64
"""How much of a wrong value an error repeats: conditions are read by people."""


class ParallelismError(ValueError):
    """Engine arguments that no warm pod can serve. Only a new claim helps, so the caller does not try again."""


def parse_parallelism(args: Mapping[str, str]) -> int:
    """Tensor parallel size times pipeline parallel size: the number of GPUs the model runs on, at least 1.

    An absent or blank size is 1, and blanks around a size are ignored. Raises ParallelismError for a size that is not a
    positive integer, for data parallelism, for a product beyond int64, and for ``--gpu-memory-utilization`` at all.
    """
    if GPU_MEMORY_UTILIZATION in args:
        raise ParallelismError(
            f"{GPU_MEMORY_UTILIZATION} is not supported: the operator divides a card's memory itself"
        )
    tensor = _size(args, TENSOR_PARALLEL_SIZE)
    pipeline = _size(args, PIPELINE_PARALLEL_SIZE)
    data = _size(args, DATA_PARALLEL_SIZE)
    if data != 1:
        raise ParallelismError(f"{DATA_PARALLEL_SIZE}={data} is unsupported by fixed topology pools")
    parallelism = tensor * pipeline
    if parallelism > _MAX_INT64:
        raise ParallelismError(f"{TENSOR_PARALLEL_SIZE}={tensor} times {PIPELINE_PARALLEL_SIZE}={pipeline} overflows")
    return parallelism


def _size(args: Mapping[str, str], flag: str) -> int:
    """The positive int64 that ``flag`` holds; 1 when it is absent or blank."""
    text = args.get(flag, "").strip()
    if not text:
        return 1
    # The digits are counted before they are read, because Python refuses to read thousands of them at all.
    digits = text.lstrip("+").lstrip("0")
    if _INTEGER.fullmatch(text) and 0 < len(digits) <= _MAX_INT64_DIGITS and int(digits) <= _MAX_INT64:
        return int(digits)
    shown = text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"
    raise ParallelismError(f"{flag} must be a positive integer, and is {shown!r}")
