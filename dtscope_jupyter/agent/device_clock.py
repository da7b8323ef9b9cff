# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Puts CUDA events on the host's clock without synchronising.

An event can't be reached before the host recorded it, so `recorded - device time` never exceeds the offset of
the clocks and equals it, but for some microseconds, whenever the stream was idle: the offset is its maximum.
"""

from __future__ import annotations

from typing import Any

_REBASE_MS = 10_000.0
_DRIFT = 20e-6


class DeviceClock:
    """Used on the writing thread alone; the events it is given have been reached."""

    def __init__(self) -> None:
        """Without an event yet."""
        self.base: Any = None
        self.retired: list[Any] = []
        self._base_ns = 0.0
        self._offset_ns = 0.0
        self._learned_at = 0

    def learn(self, event: Any, recorded_ns: int) -> None:
        """`event` was recorded at `recorded_ns` of the host's clock."""
        if self.base is None:
            self.base, self._offset_ns, self._learned_at = event, float(recorded_ns), recorded_ns
            return
        candidate = recorded_ns - self._device_ns(event)
        decayed = self._offset_ns - _DRIFT * (recorded_ns - self._learned_at)
        self._offset_ns, self._learned_at = max(candidate, decayed), recorded_ns

    def time(self, event: Any) -> int:
        """Time of the event by the host's clock, in ns."""
        return int(self._device_ns(event) + self._offset_ns)

    def _device_ns(self, event: Any) -> float:
        since = float(self.base.elapsed_time(event))
        device = self._base_ns + since * 1e6
        if since > _REBASE_MS:
            self.retired.append(self.base)
            self.base, self._base_ns = event, device
        return device
