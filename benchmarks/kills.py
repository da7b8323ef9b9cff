# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Rows lost or doubled when ranks, collector and notebook are killed at random moments.

Rounds of two ranks that write numbered rows, a shipper each, a collector and a notebook's mirror. One of them is killed at a
time and started anew (a killed rank is dead). At the end of a round the collector's and the notebook's rows are compared
with what each rank has on disk, and the rank's disk with what it said it had flushed. Run: python benchmarks/kills.py [--kills 100]
"""

from __future__ import annotations

import argparse
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from interleaved import write

from dtscope_jupyter import store, transport

WRITER = Path(__file__).resolve().parents[1] / "tests" / "integration" / "_transport_writer.py"
COLLECT = """
import sys
from pathlib import Path
from dtscope_jupyter import transport
transport.collect(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
"""
MIRROR = """
import sys, time
from pathlib import Path
from dtscope_jupyter import transport
while True:
    try:
        mirror = transport.mirror(sys.argv[1], Path(sys.argv[3]), Path(sys.argv[2]))
        break
    except ValueError:
        time.sleep(0.2)
time.sleep(600)
"""
ROUND_S = 12.0


def values(folder: Path) -> list[int]:
    """The numbers in a rank folder's collectives."""
    return [value for batch in store.BlockReader(folder, "collectives").batches() for value in batch.column("seq").to_pylist()]


class Round:
    """One run: its processes, and what became of its rows."""

    def __init__(self, scratch: Path, number: int) -> None:
        """Starts everything."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.endpoint = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
        self.keys, self.source = scratch / "keys", scratch / f"run-{number}"
        self.collected, self.mirrored = scratch / f"collected-{number}", scratch / f"mirrored-{number}"
        self.folders = [self.source / f"rank-{rank:04d}" for rank in range(2)]
        for folder in self.folders:
            folder.mkdir(parents=True)
        arguments = [(str(folder), str(rank), str(ROUND_S)) for rank, folder in enumerate(self.folders)]
        self.ranks = [subprocess.Popen([sys.executable, str(WRITER), *each]) for each in arguments]
        pairs = zip(self.folders, self.ranks, strict=True)
        self.shippers = [transport.ship(folder, self.endpoint, self.keys, rank.pid) for folder, rank in pairs]
        self.collector, self.notebook = self._collect(), self._mirror()

    def kill(self, what: str, dice: random.Random) -> None:
        """Kills one; all but a rank are started again at once."""
        if what == "rank":
            dice.choice(self.ranks).kill()
        elif what == "collector":
            _kill(self.collector)
            self.collector = self._collect()
        else:
            _kill(self.notebook)
            self.notebook = self._mirror()

    def end(self) -> Counter[str]:
        """Waits for the rest to arrive, and counts rows: of the ranks, and those lost or doubled on either copy."""
        for process in [*self.ranks, *self.shippers]:
            process.wait(120)
        counts: Counter[str] = Counter()
        deadline = time.monotonic() + 60
        for folder in self.folders:
            own = values(folder)
            assert own == list(range(len(own)))
            counts["rows"] += len(own)
            for name, copy in (("collector", self.collected), ("notebook", self.mirrored)):
                place = copy / self.source.name / folder.name
                while name == "notebook" and len(values(place)) < len(own) and time.monotonic() < deadline:
                    time.sleep(0.2)
                seen = Counter(values(place))
                counts[f"{name} lost"] += len(set(own) - set(seen))
                counts[f"{name} doubled"] += sum(count - 1 for count in seen.values())
        for process in (self.collector, self.notebook):
            _kill(process)
        return counts

    def _collect(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", COLLECT, self.endpoint, str(self.collected), str(self.keys)]
        return subprocess.Popen(command, stderr=subprocess.DEVNULL)

    def _mirror(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", MIRROR, self.endpoint, str(self.mirrored), str(self.keys)]
        return subprocess.Popen(command, stderr=subprocess.DEVNULL)


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description="Rows lost or doubled over random kills.")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    dice, done, counts = random.Random(options.seed), Counter[str](), Counter[str]()
    with tempfile.TemporaryDirectory() as scratch:
        transport.make_keys(Path(scratch, "keys"))
        number = 0
        while done.total() < options.kills:
            playing = Round(Path(scratch), number)
            end = time.monotonic() + ROUND_S + 1
            while time.monotonic() < end and done.total() < options.kills:
                time.sleep(dice.uniform(0.2, 1.5))
                what = dice.choices(("rank", "collector", "notebook"), (1, 6, 6))[0]
                playing.kill(what, dice)
                done[what] += 1
            counts += playing.end()
            number += 1
    print(f"{done.total()} kills ({dict(done)}) in {number} rounds")
    for name in ("rows", "collector lost", "collector doubled", "notebook lost", "notebook doubled"):
        print(f"{name:<18} {counts[name]:,}")
    if options.out:
        write(options.out, {"kills": dict(done), "rounds": number, **counts})


if __name__ == "__main__":
    main()
