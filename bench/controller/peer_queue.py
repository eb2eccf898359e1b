"""A minimal operator on our own watch, work queue and calls: one status patch for each ModelClaim."""

from __future__ import annotations

import asyncio
import os
import pathlib
import signal

import uvloop

from aibrix_operator.cluster import errors
from aibrix_operator.cluster.client import Cluster
from aibrix_operator.cluster.overlay import Overlay
from aibrix_operator.cluster.resource import MODEL_CLAIMS, Key, Object, key_of
from aibrix_operator.cluster.watch import Change, Watch
from aibrix_operator.cluster.work_queue import WorkQueue


async def main() -> None:
    async with await Cluster.connect(pathlib.Path(os.environ["KUBECONFIG"])) as cluster:

        def changed(change: Change, old: Object | None, new: Object | None) -> None:
            claims.observed(change, old, new)
            if new is not None:
                queue.wake(key_of(new))

        async def reconcile(key: Key) -> None:
            claim = claims.get(key)
            if claim is None or claim.get("status", {}).get("phase") == "Active":
                return
            try:
                version = claim["metadata"]["resourceVersion"]
                claims.wrote(await cluster.patch_status(MODEL_CLAIMS, *key, {"phase": "Active"}, version))
            except (errors.Conflict, errors.NotFound):
                return  # the watch brings what changed, and wakes again

        watch = Watch(cluster, MODEL_CLAIMS, on_event=changed)
        claims = Overlay(watch.objects)
        queue = WorkQueue("claims", reconcile, workers=int(os.environ["WORKERS"]))
        queue.start()
        watching = asyncio.create_task(watch.run())
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, watching.cancel)
        try:
            await watching
        except asyncio.CancelledError:
            await queue.stop(grace_s=5)


if __name__ == "__main__":
    uvloop.run(main())
