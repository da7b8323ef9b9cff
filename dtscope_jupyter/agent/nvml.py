# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Rows of `devices` from NVML; what a GPU or driver does not tell is null."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pynvml

if TYPE_CHECKING:
    from collections.abc import Callable

    from dtscope_jupyter.agent.config import Config

_KIB = 1024
_PCIE_NS = 30 * 10**9
_REASONS = {
    "nvmlClocksEventReasonSwPowerCap": "power_cap",
    "nvmlClocksThrottleReasonHwSlowdown": "hw_slowdown",
    "nvmlClocksEventReasonSwThermalSlowdown": "sw_thermal",
    "nvmlClocksThrottleReasonHwThermalSlowdown": "hw_thermal",
    "nvmlClocksThrottleReasonHwPowerBrakeSlowdown": "power_brake",
    "nvmlClocksEventReasonSyncBoost": "sync_boost",
    "nvmlClocksEventReasonApplicationsClocksSetting": "clocks_set",
}


class Nvml:
    """The GPUs that this rank samples: (the rank that uses it, its local number, handle)."""

    def __init__(self, config: Config) -> None:
        """Opens NVML; pynvml.NVMLError where there is no driver."""
        pynvml.nvmlInit()
        visible = _visible()
        local_size = int(os.environ.get("LOCAL_WORLD_SIZE", config.world_size))
        self._asked: dict[int, int] = {}
        self._traffic: dict[int, tuple[int, int, int]] = {}
        self._devices: list[tuple[int, int, Any]] = []
        if len(visible) == 1 and local_size > 1:
            self._devices = [(config.rank, 0, visible[0])]
        elif config.local_rank == 0:
            self._devices = [(config.rank + local, local, handle) for local, handle in enumerate(visible[:local_size])]

    def rows(self, time_ns: int) -> list[tuple[int, tuple[Any, ...]]]:
        """A (rank, row without the rank) for each GPU, as of now."""
        return [(rank, self._row(time_ns, local, handle)) for rank, local, handle in self._devices]

    def _row(self, time_ns: int, local: int, handle: Any) -> tuple[Any, ...]:
        busy = _try(pynvml.nvmlDeviceGetUtilizationRates, handle)
        memory = _try(pynvml.nvmlDeviceGetMemoryInfo, handle)
        power = _try(pynvml.nvmlDeviceGetPowerUsage, handle)
        received, sent = self._links(time_ns, local, handle)
        return (
            time_ns, f"cuda:{local}", _text(_try(pynvml.nvmlDeviceGetName, handle)),
            None if busy is None else float(busy.gpu), None if busy is None else float(busy.memory),
            None if memory is None else int(memory.used),
            _float(_try(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_SM)),
            None if power is None else power / 1000.0,
            _float(_try(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU)),
            _throttle(handle),
            *self._pcie(time_ns, local, handle), received, sent, _errors(handle),
        )  # fmt: skip

    def _pcie(self, time_ns: int, local: int, handle: Any) -> tuple[float | None, float | None]:
        """PCIe bytes/s, now and then: the driver counts for 20 ms while it is asked."""
        if time_ns - self._asked.get(local, 0) < _PCIE_NS:
            return None, None
        self._asked[local] = time_ns
        return _pcie(handle, pynvml.NVML_PCIE_UTIL_RX_BYTES), _pcie(handle, pynvml.NVML_PCIE_UTIL_TX_BYTES)

    def _links(self, time_ns: int, local: int, handle: Any) -> tuple[float | None, float | None]:
        """NVLink bytes/s over all links, from the data counters (KiB)."""
        counted = _link_counters(handle)
        if counted is None:
            return None, None
        before = self._traffic.get(local)
        self._traffic[local] = (time_ns, *counted)
        if before is None or time_ns <= before[0]:
            return None, None
        seconds = (time_ns - before[0]) / 1e9
        return (counted[0] - before[1]) * _KIB / seconds, (counted[1] - before[2]) * _KIB / seconds


def _visible() -> list[Any]:
    """Handles of the GPUs in the order in which the job numbers them."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
    handles = []
    for name in filter(None, (part.strip() for part in named.split(","))):
        by_index = name.lstrip("-").isdigit()
        if by_index and int(name) < 0:
            break
        handles.append(pynvml.nvmlDeviceGetHandleByIndex(int(name)) if by_index else pynvml.nvmlDeviceGetHandleByUUID(name))
    return handles


def _try(call: Callable[..., Any], *args: Any) -> Any:
    try:
        return call(*args)
    except pynvml.NVMLError:
        return None


def _float(value: Any) -> float | None:
    return None if value is None else float(value)


def _text(value: Any) -> str | None:
    return value.decode() if isinstance(value, bytes) else value


def _pcie(handle: Any, counter: int) -> float | None:
    value = _try(pynvml.nvmlDeviceGetPcieThroughput, handle, counter)
    return None if value is None else float(value) * _KIB


def _throttle(handle: Any) -> str | None:
    reasons = _try(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
    if reasons is None:
        return None
    return ",".join(word for name, word in _REASONS.items() if reasons & getattr(pynvml, name, 0))


def _errors(handle: Any) -> int | None:
    value = _try(pynvml.nvmlDeviceGetTotalEccErrors, handle, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_AGGREGATE_ECC)
    return None if value is None else int(value)


def _link_counters(handle: Any) -> tuple[int, int] | None:
    """KiB received and sent over all NVLinks so far; scope UINT_MAX stands for all links."""
    fields = [(pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, 0xFFFFFFFF), (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, 0xFFFFFFFF)]
    values = _try(pynvml.nvmlDeviceGetFieldValues, handle, fields)
    if values is None or any(value.nvmlReturn != pynvml.NVML_SUCCESS for value in values):
        return None
    return int(values[0].value.ullVal), int(values[1].value.ullVal)
