# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The rendezvous store of one job, in a process of its own as torchrun's agent holds it.

The kernel (of a cluster: the engine of rank 0) has bound the socket already, so that no other process can take the port; it is
reachable at the address it is bound to and no other: that of loopback where all ranks are on one host.
"""

from __future__ import annotations

import os

from dtscope_jupyter.launch.orphan import die_with


def main(descriptors: list[int], server: int) -> int:
    """Serves the store until the kernel closes its end of the second descriptor."""
    listener, alive = descriptors
    die_with(server)
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    address, port = _address(listener)
    store = TCPStore(address, port, None, is_master=True, wait_for_workers=False, master_listen_fd=listener)
    os.read(alive, 1)
    del store
    return 0


def _address(descriptor: int) -> tuple[str, int]:
    import socket

    with socket.socket(fileno=os.dup(descriptor)) as bound:
        address, port = bound.getsockname()[:2]
        return str(address), int(port)
