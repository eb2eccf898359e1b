"""Reads the GPUs through NVML. Every reading is whole or empty: half a reading would be taken for a full card's truth.

NVML's start and end are process-wide, so one lock holds a reading together. Calls block: make them from a thread.
"""

from __future__ import annotations

import importlib
import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aibrix_operator.runtime_api.wire import UNKNOWN_BYTES, Accelerator

logger = logging.getLogger(__name__)

PROCESS_QUERIES = (
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetComputeRunningProcesses_v2",
    "nvmlDeviceGetComputeRunningProcesses",
)


@dataclass(frozen=True, slots=True)
class GpuReading:
    """What NVML showed at one moment. Empty: no GPU, no driver, or a reading that failed midway."""

    accelerators: tuple[Accelerator, ...] = ()
    held_bytes: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    """pid → GPU UUID → bytes. The driver may report pids of the host's namespace, which match nobody here."""


class Nvml:
    """The GPUs of this Pod. Keeps each card's usable size once read: it belongs to card and driver, not to load."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._usable_bytes: dict[str, int] = {}
        self._has_seen_a_gpu = False

    @property
    def has_seen_a_gpu(self) -> bool:
        """Whether any reading so far showed a GPU; one that blinks is still there."""
        return self._has_seen_a_gpu

    def read(self) -> GpuReading:
        """One reading of all visible GPUs."""
        try:
            pynvml = importlib.import_module("pynvml")  # here, since it also runs where nobody installed it
        except ImportError:
            return GpuReading()
        with self._lock:
            try:
                pynvml.nvmlInit()
            except Exception as error:  # NVMLError has a class per code, stand-ins their own
                logger.debug("NVML is not available: %s", error)
                return GpuReading()
            try:
                reading = self._read_all(pynvml)
            except Exception as error:  # as above
                logger.warning("the GPUs could not be read: %s", error)
                return GpuReading()
            finally:
                self._shut_down(pynvml)
        self._has_seen_a_gpu = self._has_seen_a_gpu or bool(reading.accelerators)
        return reading

    def _shut_down(self, pynvml: Any) -> None:
        try:
            pynvml.nvmlShutdown()
        except Exception as error:  # as above; the reading itself is complete
            logger.debug("NVML did not shut down: %s", error)

    def _read_all(self, pynvml: Any) -> GpuReading:
        accelerators: list[Accelerator] = []
        held: dict[int, dict[str, int]] = {}
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            uuid = _text(pynvml.nvmlDeviceGetUUID(handle))
            memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
            accelerators.append(
                Accelerator(
                    id=uuid,
                    hbm_total_bytes=int(memory.total),
                    hbm_free_bytes=int(memory.free),
                    hbm_usable_bytes=self._usable(pynvml, handle, uuid),
                )
            )
            for pid, held_bytes in _processes(pynvml, handle):
                held.setdefault(pid, {})[uuid] = held_bytes
        return GpuReading(tuple(accelerators), held)

    def _usable(self, pynvml: Any, handle: Any, uuid: str) -> int:
        """Total less what driver and firmware keep, or ``UNKNOWN_BYTES``.

        Free plus what processes hold is not the same: the figures are not of one moment, and memory that NVML
        attributes to nobody would be missing or counted twice.
        """
        if uuid in self._usable_bytes:
            return self._usable_bytes[uuid]
        version = getattr(pynvml, "nvmlMemory_v2", None)
        if version is None:
            return UNKNOWN_BYTES
        try:
            memory = pynvml.nvmlDeviceGetMemoryInfo(handle, version=version)
            total, reserved = int(memory.total), int(memory.reserved)
        except Exception as error:  # as above; an old driver knows no second version
            logger.debug("GPU %s tells no reserved memory: %s", uuid, error)
            return UNKNOWN_BYTES
        if not 0 <= reserved < total:
            return UNKNOWN_BYTES
        self._usable_bytes[uuid] = total - reserved
        return total - reserved


def _processes(pynvml: Any, handle: Any) -> list[tuple[int, int]]:
    """(pid, bytes) of the processes whose memory is known on this GPU."""
    query = next((getattr(pynvml, name) for name in PROCESS_QUERIES if hasattr(pynvml, name)), None)
    if query is None:
        return []
    unavailable = getattr(pynvml, "NVML_VALUE_NOT_AVAILABLE", None)
    found = []
    for process in query(handle):
        used = process.usedGpuMemory
        if used is None or used == unavailable or int(used) < 0:
            continue
        found.append((int(process.pid), int(used)))
    return found


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
