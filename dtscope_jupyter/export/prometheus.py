# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Serves the metrics of the runs in a directory to Prometheus: `python -m dtscope_jupyter.export.prometheus DIR HOST:PORT`."""

from __future__ import annotations

import argparse
import logging
import re
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from dtscope_jupyter.errors import DtscopeError
from dtscope_jupyter.export.metrics import COUNTER, Watcher

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client import Metric

log = logging.getLogger(__name__)

_PERIOD_S = 2.0


class Exporter:
    """A collector for prometheus_client's registry."""

    def __init__(self, folder: Path) -> None:
        """`folder` holds run directories."""
        self._watcher = Watcher(folder)
        self._lock = threading.Lock()

    def poll(self) -> None:
        """Reads what is new."""
        with self._lock:
            self._watcher.poll()

    def collect(self) -> Iterable[Metric]:
        """The families, as a scrape wants them."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        with self._lock:
            for metric in self._watcher.metrics():
                kind = CounterMetricFamily if metric.kind == COUNTER else GaugeMetricFamily
                family = kind(metric.name, metric.help, labels=metric.labels)
                for labels, value in sorted(metric.samples.items()):
                    family.add_metric(labels, value)
                yield family


def serve(folder: Path, address: str, stop: threading.Event) -> None:
    """Serves at HOST:PORT until `stop`; DtscopeError where that can't be."""
    try:
        import prometheus_client
    except ImportError as error:
        raise DtscopeError("prometheus-client is not installed; pip install 'dtscope-jupyter[prometheus]'") from error
    found = re.fullmatch(r"\[?([^\[\]\s]*)\]?:(\d{1,5})", address)
    if not found:
        raise DtscopeError(f"{address!r} is no HOST:PORT; give e.g. 127.0.0.1:9464")
    if not folder.is_dir():
        raise DtscopeError(f"{str(folder)!r} is no directory; give the one that holds the runs")
    registry, exporter = prometheus_client.CollectorRegistry(), Exporter(folder)
    exporter.poll()
    registry.register(exporter)
    try:
        server, thread = prometheus_client.start_http_server(int(found[2]), found[1] or "127.0.0.1", registry)
    except (OSError, OverflowError) as error:
        raise DtscopeError(f"can't serve metrics at {address!r}: {error}; give a free HOST:PORT") from error
    while not stop.wait(_PERIOD_S):
        exporter.poll()
    server.shutdown()
    server.server_close()
    thread.join()


def main() -> int:
    """Exit 0 at SIGTERM or SIGINT, 2 with one line where it can't serve."""
    parser = argparse.ArgumentParser(prog="python -m dtscope_jupyter.export.prometheus", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("address")
    options = parser.parse_args()
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    try:
        serve(options.folder, options.address, stop)
    except DtscopeError as error:
        log.error("%s", error)  # noqa: TRY400 - one line, no traceback
        return 2
    return 0


if __name__ == "__main__":
    logging.basicConfig(format="%(message)s")
    sys.exit(main())
