"""The controller that the operator process hosts."""

from __future__ import annotations

from aibrix_operator.controller.hub import Hub
from aibrix_operator.controller.keyed import KeyedController
from aibrix_operator.modeladapter.kind import ModelAdapters
from aibrix_operator.modeladapter.memory import Memory
from aibrix_operator.modeladapter.snapshot import Snapshot


class ModelAdapterController(KeyedController[Snapshot, Memory]):
    """The frame's, with engines that are asked while a term lasts."""

    def __init__(self, kind: ModelAdapters, hub: Hub) -> None:
        super().__init__(kind, hub)
        self._adapters = kind

    async def begin(self) -> None:
        """As ``Controller.begin``."""
        self._adapters.start(self.look)
        await super().begin()

    async def end(self, grace_s: float) -> None:
        """As ``Controller.end``."""
        await super().end(grace_s)
        await self._adapters.stop()
