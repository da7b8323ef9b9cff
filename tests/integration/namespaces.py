# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Two hosts on one machine: network namespaces, joined by a virtual cable."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

MISSING = os.geteuid() != 0 or shutil.which("ip") is None
"""Whether there can be none here."""


class Hosts:
    """Host 0 has address `network`.1, host 1 `network`.2."""

    def __init__(self, mark: str, network: str) -> None:
        self.network = network
        self.names = [f"dt{mark}{side}{os.getpid()}" for side in "ab"]
        self.cables = [f"{mark}{side}{os.getpid()}" for side in "ab"]

    def make(self) -> None:
        for name in self.names:
            run("ip", "netns", "add", name)
        run("ip", "link", "add", self.cables[0], "type", "veth", "peer", "name", self.cables[1])
        for number, (name, cable) in enumerate(zip(self.names, self.cables, strict=True), start=1):
            run("ip", "link", "set", cable, "netns", name)
            run("ip", "-n", name, "addr", "add", f"{self.network}.{number}/24", "dev", cable)
            run("ip", "-n", name, "link", "set", "lo", "up")
            run("ip", "-n", name, "link", "set", cable, "up")

    def remove(self) -> None:
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], check=False, stderr=subprocess.DEVNULL)

    def start(self, host: int, *command: str, **variables: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(["ip", "netns", "exec", self.names[host], *command], env=os.environ | variables)


def run(*command: str) -> None:
    subprocess.run(command, check=True, stderr=subprocess.PIPE)


@contextmanager
def made(hosts: Hosts) -> Iterator[None]:
    """The hosts, for a while; the test is skipped where the machine has no namespaces."""
    try:
        try:
            hosts.make()
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no network namespaces here: {error.stderr.decode().strip()}")
        yield
    finally:
        hosts.remove()
