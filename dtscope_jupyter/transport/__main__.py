# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""`python -m dtscope_jupyter.transport FOLDER ENDPOINT --keys FILE [--pid PID]`: ships one rank folder, also one left behind."""

from __future__ import annotations

import argparse
import logging
import os
import select
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from dtscope_jupyter.errors import DtscopeError
from dtscope_jupyter.transport.keys import load_client
from dtscope_jupyter.transport.shipper import Shipper

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger("dtscope.ship")


def main(arguments: list[str] | None = None) -> int:
    """Exit 0 when all is shipped, 2 with one line where it can't be."""
    parser = argparse.ArgumentParser(prog="python -m dtscope_jupyter.transport", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("endpoint")
    parser.add_argument("--keys", type=Path, required=True)
    parser.add_argument("--pid", type=int, help="the rank; without it the folder is shipped as it is")
    parser.add_argument("--linger", type=float, default=600.0, help="seconds to wait for the collector after the rank's end")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    with suppress(OSError):
        os.nice(5)
    try:
        shipper = Shipper(options.folder, options.endpoint, load_client(options.keys))
        done = shipper.run(_watch(options.pid), options.linger)
    except DtscopeError as error:
        log.error("%s", error)  # noqa: TRY400 - one line, no traceback
        return 2
    if not done:
        later = f"python -m dtscope_jupyter.transport {options.folder} {options.endpoint} --keys FILE"
        log.error("the collector stayed away; ship later with: %s", later)
    return 0 if done else 2


def _watch(pid: int | None) -> Callable[[], bool]:
    if pid is None:
        return lambda: False
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return lambda: False
    return lambda: not select.select([descriptor], [], [], 0)[0]


if __name__ == "__main__":
    sys.exit(main())
