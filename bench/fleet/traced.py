"""The operator with its passes measured from within: each prints its seconds and the memory that it asked for.

Run as ``python -m bench.fleet.traced OPERATOR_OPTIONS``. Memory is traced during a pass only; a traced pass takes a
multiple of its usual time, so the seconds of the table are the plain operator's.
"""

from __future__ import annotations

import sys
import time
import tracemalloc

import orjson

from aibrix_operator import cli
from aibrix_operator.modelclaim import reconcile
from aibrix_operator.modelclaim.world import World

_plain = reconcile.reconcile


async def _traced(namespace: str, world: World) -> None:
    tracemalloc.start()
    began_s = time.perf_counter()
    await _plain(namespace, world)
    seconds = time.perf_counter() - began_s
    _, peak_bytes = tracemalloc.get_traced_memory()
    blocks = len(tracemalloc.take_snapshot().traces)
    tracemalloc.stop()
    said = {"at_s": time.monotonic(), "seconds": seconds, "peak_bytes": peak_bytes, "kept_blocks": blocks}
    print("pass", orjson.dumps(said).decode(), flush=True)


if __name__ == "__main__":
    reconcile.reconcile = _traced
    sys.argv[1:1] = ["operator"]
    cli.app()
