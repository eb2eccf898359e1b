"""NVML readings: whole or empty, usable memory kept, processes as far as they are known."""

import sys
from types import ModuleType, SimpleNamespace

import pytest

from aibrix_operator.runtime.nvml import GpuReading, Nvml
from aibrix_operator.runtime_api.wire import Accelerator


class FakeNvmlModule(ModuleType):
    """One GPU; ``fails`` names functions that raise."""

    NVML_VALUE_NOT_AVAILABLE = 2**64 - 1
    nvmlMemory_v2 = 0x2000028

    def __init__(self):
        super().__init__("pynvml")
        self.fails, self.open, self.reserved = set(), 0, 10
        self.processes = [(7, 30), (8, None), (9, self.NVML_VALUE_NOT_AVAILABLE)]

    def _call(self, name):
        if name in self.fails:
            raise RuntimeError(f"{name} failed")

    def nvmlInit(self):
        self._call("init")
        self.open += 1

    def nvmlShutdown(self):
        self.open -= 1
        self._call("shutdown")

    def nvmlDeviceGetCount(self):
        return 1

    def nvmlDeviceGetHandleByIndex(self, index):
        return index

    def nvmlDeviceGetUUID(self, handle):
        return b"GPU-1"

    def nvmlDeviceGetMemoryInfo(self, handle, version=None):
        self._call("memory" if version is None else "memory-v2")
        return SimpleNamespace(total=100, free=60, reserved=self.reserved)

    def nvmlDeviceGetComputeRunningProcesses_v3(self, handle):
        self._call("processes")
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in self.processes]


@pytest.fixture
def module(monkeypatch):
    fake = FakeNvmlModule()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


def card(usable_bytes):
    return Accelerator(id="GPU-1", hbm_total_bytes=100, hbm_free_bytes=60, hbm_usable_bytes=usable_bytes)


def test_a_reading_has_cards_and_processes(module):
    nvml = Nvml()
    assert nvml.read() == GpuReading((card(90),), {7: {"GPU-1": 30}})
    assert nvml.has_seen_a_gpu
    assert module.open == 0


@pytest.mark.parametrize("name", ["init", "memory", "processes"])
def test_a_reading_that_fails_midway_is_empty_and_nvml_is_closed(module, name):
    module.fails = {name}
    nvml = Nvml()
    assert nvml.read() == GpuReading()
    assert (module.open, nvml.has_seen_a_gpu) == (0, False)


def test_a_shutdown_that_fails_spoils_nothing(module):
    module.fails = {"shutdown"}
    assert Nvml().read().accelerators == (card(90),)


def test_usable_memory_is_kept_once_read(module):
    nvml = Nvml()
    module.fails = {"memory-v2"}
    assert nvml.read().accelerators == (card(-1),)
    module.fails = set()
    assert nvml.read().accelerators == (card(90),)
    module.fails = {"memory-v2"}
    assert nvml.read().accelerators == (card(90),)


@pytest.mark.parametrize("reserved", [-1, 100, 101])
def test_a_reservation_that_cannot_be_is_unknown(module, reserved):
    module.reserved = reserved
    assert Nvml().read().accelerators == (card(-1),)


def test_a_driver_without_the_second_query_is_unknown(module, monkeypatch):
    monkeypatch.delattr(FakeNvmlModule, "nvmlMemory_v2")
    assert Nvml().read().accelerators == (card(-1),)


def test_a_gpu_that_blinks_was_still_seen(module):
    nvml = Nvml()
    nvml.read()
    module.fails = {"init"}
    assert nvml.read() == GpuReading()
    assert nvml.has_seen_a_gpu


def test_no_module_is_no_gpu(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert Nvml().read() == GpuReading()
