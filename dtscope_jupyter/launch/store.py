# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The rendezvous store of one job, in a process of its own as torchrun's agent holds it.

The kernel has bound the socket already: no other process can take the port, and it is reachable from this host only.
"""

from __future__ import annotations

import os

from dtscope_jupyter.launch.orphan import die_with


def main(descriptors: list[int], server: int) -> int:
    """Serves the store until the kernel closes its end of the second descriptor."""
    listener, alive = descriptors
    die_with(server)
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    port = _port(listener)
    store = TCPStore("127.0.0.1", port, None, is_master=True, wait_for_workers=False, master_listen_fd=listener)
    os.read(alive, 1)
    del store
    return 0


def _port(descriptor: int) -> int:
    import socket

    with socket.socket(fileno=os.dup(descriptor)) as bound:
        return int(bound.getsockname()[1])
