# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Between hosts: ranks ship what they record to a collector, and notebooks follow it there.

The doors import what they need when they are called: inside a rank, `ship` loads neither pyarrow nor ZeroMQ.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from dtscope_jupyter.errors import DtscopeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from dtscope_jupyter.transport.mirroring import Mirror


def make_keys(folder: Path) -> list[Path]:
    """Makes the keys of a collector, its ranks and its notebooks (0600); DtscopeError where that can't be."""
    from dtscope_jupyter.transport import keys

    return keys.create(folder)


def collect(
    listen: str,
    folder: Path,
    keys: Path | None = None,
    disk: int = 2 * 2**30,
    prometheus: str | None = None,
    *,
    began: Callable[[str], None] | None = None,
) -> None:
    """Receives at `listen` (tcp://HOST:PORT) and writes run directories into `folder`, until SIGINT or SIGTERM.

    `keys` is what `dtscope keys` made, by default $DTRAINSCOPE_KEYS, FOLDER/keys or FOLDER itself; `disk` the bytes a
    rank may have; `prometheus` HOST:PORT of the metrics, which are served by a process of their own; `began` is told
    the address once it listens. DtscopeError where it can't begin.
    """
    from dtscope_jupyter.transport import wire
    from dtscope_jupyter.transport.collector import Collector
    from dtscope_jupyter.transport.keys import load_collector

    if not wire.is_address(listen, 0):
        raise DtscopeError(f"can't listen at {listen!r}: no address; give tcp://HOST:PORT with a free port")
    stop = threading.Event()
    collector = Collector(listen, folder, load_collector(keys or _keys_of(folder)), disk)
    metrics = serve_metrics(folder, prometheus) if prometheus else None
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    if began:
        began(collector.endpoint)
    try:
        collector.run(stop)
    finally:
        if metrics:
            metrics.terminate()
            metrics.wait()


def _keys_of(folder: Path) -> Path:
    named = os.environ.get("DTRAINSCOPE_KEYS")
    if named:
        return Path(named).expanduser()
    return next((path for path in (folder / "keys", folder) if (path / "collector.json").exists()), folder / "keys")


def ship(folder: Path, endpoint: str, keys: Path, pid: int | None = None) -> subprocess.Popen[bytes]:
    """Starts the process that ships a rank folder to the collector at `endpoint` for as long as the rank `pid` (ours) lives.

    It is in a session of its own, goes on after the rank until all is shipped, and writes to ship.log in the folder.
    """
    command = [sys.executable, "-m", "dtscope_jupyter.transport", str(folder), endpoint, "--keys", str(keys)]
    descriptor = os.open(folder / "ship.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        return subprocess.Popen(
            [*command, "--pid", str(pid or os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            start_new_session=True,
            env={name: value for name, value in os.environ.items() if name != "DTRAINSCOPE_ENABLE"},
        )
    finally:
        os.close(descriptor)


def mirror(endpoint: str, keys: Path, into: Path, run: str = "") -> Mirror:
    """Follows a run ("" is the newest) of the collector at `endpoint` into a directory; `.path` is its copy, `.stop()` ends it."""
    from dtscope_jupyter.transport.keys import load_client
    from dtscope_jupyter.transport.mirroring import Mirror

    return Mirror(endpoint, load_client(keys, "notebook"), into, run)


def serve_metrics(folder: Path, address: str) -> subprocess.Popen[bytes]:
    """Starts the process that serves Prometheus metrics of the runs in `folder` at HOST:PORT."""
    return subprocess.Popen([sys.executable, "-m", "dtscope_jupyter.export.prometheus", str(folder), address])
