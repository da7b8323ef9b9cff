# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The same metrics through an OpenTelemetry meter of yours: `observe(folder, meter)`."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from dtscope_jupyter.errors import DtscopeError
from dtscope_jupyter.export.metrics import COUNTER, Metric, Watcher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from opentelemetry.metrics import CallbackOptions, Meter, Observation

_PERIOD_S = 1.0


def observe(folder: Path, meter: Meter) -> None:
    """Registers every family of `metrics.py` with `meter`; the runs in `folder` are read when metrics are collected.

    Names have dots (`dtscope.step.seconds`), labels are attributes. DtscopeError where opentelemetry is not installed.
    """
    source = _Source(folder)
    for metric in source.metrics():
        make = meter.create_observable_counter if metric.kind == COUNTER else meter.create_observable_gauge
        name = metric.name.replace("_", ".")
        make(name, callbacks=[source.callback(metric.name)], unit="s" if name.endswith("seconds") else "", description=metric.help)


class _Source:
    """One watcher for all instruments; reads on at most once a second."""

    def __init__(self, folder: Path) -> None:
        try:
            import opentelemetry.metrics  # noqa: F401
        except ImportError as error:
            raise DtscopeError("opentelemetry is not installed; pip install 'dtscope-jupyter[otel]'") from error
        self._watcher = Watcher(folder)
        self._lock = threading.Lock()
        self._read = float("-inf")

    def metrics(self) -> list[Metric]:
        """The families as they are now."""
        with self._lock:
            if time.monotonic() - self._read > _PERIOD_S:
                self._watcher.poll()
                self._read = time.monotonic()
            return self._watcher.metrics()

    def callback(self, name: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        """What gives one family's observations."""

        def observations(_: CallbackOptions) -> Iterable[Observation]:
            from opentelemetry.metrics import Observation

            metric = next(found for found in self.metrics() if found.name == name)
            return [Observation(value, dict(zip(metric.labels, key, strict=True))) for key, value in metric.samples.items()]

        return observations
