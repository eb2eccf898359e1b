"""Stand-in for NVIDIA's ``pynvml`` over a simulated card directory.

A runtime agent imports it instead of the real one when this folder is on its PYTHONPATH; the agent may run in an
interpreter that lacks the rest of this package, so only the standard library and the card file beside it are used.
Covers what a runtime agent asks: counts, UUIDs, names, memory (version 1 and 2) and memory by process.

``nvml-broken`` in the card directory makes NVML fail while it exists. Empty: every call does. Otherwise one word a
line: a card's UUID (that card is lost), a function's name (it fails), or ``nvmlMemory_v2`` (a driver without it).
``nvml-host-pids`` makes it show pids that no process in sight has, as NVML does inside a PID namespace.
"""

import importlib.util
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from aibrix_operator.sim import card
else:
    _spec = importlib.util.spec_from_file_location("aibrix_sim_card", Path(__file__).resolve().parents[1] / "card.py")
    card = importlib.util.module_from_spec(_spec)
    sys.modules[_spec.name] = card  # dataclasses look their module up there
    _spec.loader.exec_module(card)

NVML_SUCCESS = 0
NVML_ERROR_UNINITIALIZED = 1
NVML_ERROR_INVALID_ARGUMENT = 2
NVML_ERROR_NOT_SUPPORTED = 3
NVML_ERROR_NOT_FOUND = 6
NVML_ERROR_DRIVER_NOT_LOADED = 9
NVML_ERROR_LIBRARY_NOT_FOUND = 12
NVML_ERROR_FUNCTION_NOT_FOUND = 13
NVML_ERROR_GPU_IS_LOST = 15
NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25
NVML_ERROR_UNKNOWN = 999

nvmlMemory_v2 = 0x02000028
_HOST_PID_OFFSET = 4_194_304  # above the kernel's highest pid, so that no process in sight has it


class NVMLError(Exception):
    """An error code of NVML; ``NVMLError(code)`` makes the subclass of that code, as the real module does."""

    value = NVML_ERROR_UNKNOWN
    text = "Unknown Error"
    by_code: ClassVar[dict[int, type["NVMLError"]]] = {}

    def __new__(cls, value: int | None = None) -> "NVMLError":
        code = cls.value if value is None else value
        error = Exception.__new__(NVMLError.by_code.get(code, cls))
        error.value = code
        return error

    def __init_subclass__(cls) -> None:
        NVMLError.by_code[cls.value] = cls

    def __str__(self) -> str:
        return self.text


class NVMLError_Uninitialized(NVMLError):
    value, text = NVML_ERROR_UNINITIALIZED, "Uninitialized"


class NVMLError_InvalidArgument(NVMLError):
    value, text = NVML_ERROR_INVALID_ARGUMENT, "Invalid Argument"


class NVMLError_NotSupported(NVMLError):
    value, text = NVML_ERROR_NOT_SUPPORTED, "Not Supported"


class NVMLError_NotFound(NVMLError):
    value, text = NVML_ERROR_NOT_FOUND, "Not Found"


class NVMLError_DriverNotLoaded(NVMLError):
    value, text = NVML_ERROR_DRIVER_NOT_LOADED, "Driver Not Loaded"


class NVMLError_LibraryNotFound(NVMLError):
    value, text = NVML_ERROR_LIBRARY_NOT_FOUND, "NVML Shared Library Not Found"


class NVMLError_FunctionNotFound(NVMLError):
    value, text = NVML_ERROR_FUNCTION_NOT_FOUND, "Function Not Found"


class NVMLError_GpuIsLost(NVMLError):
    value, text = NVML_ERROR_GPU_IS_LOST, "GPU is lost"


class NVMLError_ArgumentVersionMismatch(NVMLError):
    value, text = NVML_ERROR_ARGUMENT_VERSION_MISMATCH, "Argument Version Mismatch"


class NVMLError_Unknown(NVMLError):
    value, text = NVML_ERROR_UNKNOWN, "Unknown Error"


class _Device:
    """A handle: one per card, as long as the module is initialised."""

    def __init__(self, index: int, info: "card.Card") -> None:
        self.index = index
        self.info = info


class _Record:
    """An answer with named fields, as the real module's structures are read."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}: {v}' for k, v in self.__dict__.items())})"


class _State:
    """What nvmlInit set up; the real library counts its users the same way."""

    users = 0
    devices: tuple[_Device, ...] = ()


def _directory() -> Path:
    directory = os.environ.get(card.CARDS_ENV)
    if not directory:
        raise NVMLError(NVML_ERROR_LIBRARY_NOT_FOUND)
    return Path(directory)


def _check(function: str) -> None:
    """Raise what any call of ``function`` would raise now."""
    if not _State.users:
        raise NVMLError(NVML_ERROR_UNINITIALIZED)
    _refuse_if_broken(function, NVML_ERROR_UNKNOWN)


def _info(function: str, handle: _Device) -> "card.Card":
    """The card behind a handle, or the error that ``function`` raises for it now."""
    _check(function)
    if not isinstance(handle, _Device):
        raise NVMLError(NVML_ERROR_INVALID_ARGUMENT)
    _refuse_if_broken(handle.info.uuid, NVML_ERROR_GPU_IS_LOST)
    return handle.info


def _refuse_if_broken(word: str, code: int) -> None:
    try:
        words = (_directory() / "nvml-broken").read_text().split()
    except FileNotFoundError:
        return
    if not words:
        raise NVMLError(NVML_ERROR_UNKNOWN)
    if word in words:
        raise NVMLError(code)


def nvmlInit() -> None:
    directory = _directory()
    try:
        cards = card.visible_cards(directory, os.environ.get(card.VISIBLE_ENV))
    except FileNotFoundError:
        raise NVMLError(NVML_ERROR_DRIVER_NOT_LOADED) from None
    _refuse_if_broken("nvmlInit", NVML_ERROR_DRIVER_NOT_LOADED)
    if not _State.users:
        _State.devices = tuple(_Device(index, info) for index, info in enumerate(cards))
    _State.users += 1


def nvmlInitWithFlags(flags: int) -> None:
    nvmlInit()


def nvmlShutdown() -> None:
    _check("nvmlShutdown")
    _State.users -= 1


def nvmlSystemGetDriverVersion() -> str:
    _check("nvmlSystemGetDriverVersion")
    return "580.95.05"


def nvmlDeviceGetCount() -> int:
    _check("nvmlDeviceGetCount")
    return len(_State.devices)


def nvmlDeviceGetHandleByIndex(index: int) -> _Device:
    _check("nvmlDeviceGetHandleByIndex")
    if not 0 <= index < len(_State.devices):
        raise NVMLError(NVML_ERROR_INVALID_ARGUMENT)
    handle = _State.devices[index]
    _refuse_if_broken(handle.info.uuid, NVML_ERROR_GPU_IS_LOST)
    return handle


def nvmlDeviceGetHandleByUUID(uuid: str | bytes) -> _Device:
    _check("nvmlDeviceGetHandleByUUID")
    wanted = uuid.decode() if isinstance(uuid, bytes) else uuid
    for handle in _State.devices:
        if handle.info.uuid == wanted:
            _info("nvmlDeviceGetHandleByUUID", handle)
            return handle
    raise NVMLError(NVML_ERROR_NOT_FOUND)


def nvmlDeviceGetIndex(handle: _Device) -> int:
    _info("nvmlDeviceGetIndex", handle)
    return handle.index


def nvmlDeviceGetUUID(handle: _Device) -> str:
    return _info("nvmlDeviceGetUUID", handle).uuid


def nvmlDeviceGetName(handle: _Device) -> str:
    info = _info("nvmlDeviceGetName", handle)
    for kind, sizes in card.PRESETS.items():
        if (info.total_bytes, info.reserved_bytes) == sizes:
            return f"NVIDIA {kind.upper()} (simulated)"
    return "NVIDIA Simulated GPU"


def nvmlDeviceGetMemoryInfo(handle: _Device, version: int | None = None) -> _Record:
    """Version 1 counts the driver's reservation as used, version 2 tells it apart; both give the same free memory."""
    info = _info("nvmlDeviceGetMemoryInfo", handle)
    used = card.used_bytes(_directory(), info.uuid)
    free = info.usable_bytes - used
    if not version:
        return _Record(total=info.total_bytes, free=free, used=used + info.reserved_bytes)
    _refuse_if_broken("nvmlMemory_v2", NVML_ERROR_FUNCTION_NOT_FOUND)
    if version != nvmlMemory_v2:
        raise NVMLError(NVML_ERROR_ARGUMENT_VERSION_MISMATCH)
    return _Record(version=version, total=info.total_bytes, reserved=info.reserved_bytes, free=free, used=used)


def nvmlDeviceGetComputeRunningProcesses_v3(handle: _Device) -> list[_Record]:
    info = _info("nvmlDeviceGetComputeRunningProcesses_v3", handle)
    offset = _HOST_PID_OFFSET if (_directory() / "nvml-host-pids").exists() else 0
    return [
        _Record(
            pid=held.pid + offset,
            usedGpuMemory=held.total_bytes,
            gpuInstanceId=0xFFFFFFFF,
            computeInstanceId=0xFFFFFFFF,
        )
        for held in card.holdings(_directory(), info.uuid)
    ]


nvmlDeviceGetComputeRunningProcesses = nvmlDeviceGetComputeRunningProcesses_v3
