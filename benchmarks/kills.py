# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Rows lost or doubled when ranks, collector and notebook are killed at random moments.

Rounds of two gloo ranks of an unchanged script, armed by the environment, that ship to a collector which a notebook's mirror follows.
One of them is killed at a time; collector and notebook are started anew, a killed rank ends the job. A rank notes each step as a
user's scalar and its time in memory that outlives it. At the end of a round its files must hold every step that it noted, of a killed
rank those up to 200 ms before, and both copies exactly what its files hold. Run: python benchmarks/kills.py [--kills 100]
"""

from __future__ import annotations

import argparse
import mmap
import os
import random
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from interleaved import write

from dtscope_jupyter import store, transport

TRAIN = """
import mmap, os, struct, sys, time, torch, torch.distributed as dist
import dtscope_jupyter as dts
file = open(sys.argv[1], "r+b")
said = mmap.mmap(file.fileno(), 0)
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=int(os.environ["RANK"]), world_size=2)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
end, step = time.monotonic() + float(sys.argv[3]), 0
try:
    while time.monotonic() < end:
        optimizer.zero_grad()
        model(torch.ones(8, 64)).square().mean().backward()
        optimizer.step()
        dts.log(number=step)
        struct.pack_into("<d", said, 8 * step, time.perf_counter())
        step += 1
        time.sleep(0.01)
except RuntimeError:
    pass  # the other rank was killed, or is done
"""
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
ROUND_S, AFTER_S = 20.0, 4.0
MOST_STEPS = 10_000
GRACE_S = 0.2
Rows = dict[str, list[float]]


def rows(folder: Path) -> Rows:
    """The numbers that a rank folder's notes tell of, and its steps."""
    notes = [row for batch in store.BlockReader(folder, "notes").batches() for row in batch.to_pylist()]
    steps = [step for batch in store.BlockReader(folder, "steps").batches() for step in batch.column("step").to_pylist()]
    return {"notes": [row["value"] for row in notes if row["name"] == "number"], "steps": steps}


class Rank:
    """One rank, what it said it did, and when it was killed."""

    def __init__(self, rank: int, scratch: Path, environment: dict[str, str]) -> None:
        """Starts it; `scratch` is the round's."""
        said, self.killed_at, self.rank = scratch / f"said-{rank}", 0.0, rank
        said.write_bytes(bytes(8 * MOST_STEPS))
        with said.open("r+b") as file:
            self._said = mmap.mmap(file.fileno(), 0)
        variables = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
        command = [sys.executable, "-c", TRAIN, str(said), str(scratch / "store"), str(ROUND_S)]
        self.process = subprocess.Popen(command, env=environment | variables, stderr=subprocess.DEVNULL)

    @property
    def times(self) -> list[float]:
        """When each of its steps was over."""
        times = struct.unpack(f"<{MOST_STEPS}d", self._said[:])
        return list(times[: times.index(0.0)])

    def kill(self) -> bool:
        """Kills it; False where it has ended."""
        if self.killed_at or self.process.poll() is not None:
            return False
        self.killed_at = time.perf_counter()
        _kill(self.process)
        return True

    def missing(self, kept: int) -> tuple[int, float]:
        """Of `kept` rows on its disk: rows that are missing though older than the grace, and the age in seconds of the oldest missing."""
        if not self.killed_at:
            return len(self.times) - kept, 0.0
        ages = [self.killed_at - at for at in self.times[kept:]]
        return sum(age > GRACE_S for age in ages), max(ages, default=0.0)


class Round:
    """One run: its processes, and what became of its rows."""

    def __init__(self, scratch: Path, keys: Path) -> None:
        """Starts everything in a folder of the round's own."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.endpoint = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
        self.keys, self.source, self.collected, self.mirrored = keys, scratch / "runs", scratch / "collected", scratch / "mirrored"
        told = {"ENABLE": "1", "LOG_DIR": str(self.source), "COLLECTOR": self.endpoint, "KEYS": str(keys / "rank.json")}
        environment = os.environ | {f"DTRAINSCOPE_{name}": value for name, value in told.items()}
        self.collector, self.notebook = self._collect(), self._mirror()
        self.ranks = [Rank(rank, scratch, environment) for rank in range(2)]

    def kill(self, what: str, dice: random.Random) -> bool:
        """Kills one; all but a rank are started again at once. False where it has ended."""
        if what == "rank":
            return dice.choice(self.ranks).kill()
        if what == "collector":
            _kill(self.collector)
            self.collector = self._collect()
        else:
            _kill(self.notebook)
            self.notebook = self._mirror()
        return True

    @property
    def trains(self) -> bool:
        """Whether a rank lives."""
        return any(rank.process.poll() is None for rank in self.ranks)

    def end(self) -> tuple[Counter[str], float]:
        """Waits for the rest to arrive, and counts rows; and the age of the oldest row that a killed rank did not keep."""
        for rank in self.ranks:
            rank.process.wait(120)
        counts, oldest, deadline = Counter[str](), 0.0, time.monotonic() + 90
        for rank in self.ranks:
            found = list(self.source.glob(f"*/rank-{rank.rank:04d}"))
            if not found:
                assert not rank.times
                continue
            own = rows(found[0])
            lost, age = rank.missing(len(own["notes"]))
            counts["rank lost"], oldest = counts["rank lost"] + lost, max(oldest, age)
            for table, numbers in own.items():
                assert numbers == list(range(len(numbers))), table
                counts[f"rows of {table}"] += len(numbers)
            for name, copies in (("collector", self.collected), ("notebook", self.mirrored)):
                counts += _compared(name, own, copies / found[0].parent.name / found[0].name, deadline)
        for process in (self.collector, self.notebook):
            _kill(process)
        return counts, oldest

    def _collect(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", COLLECT, self.endpoint, str(self.collected), str(self.keys)]
        return subprocess.Popen(command, stderr=subprocess.DEVNULL)

    def _mirror(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", MIRROR, self.endpoint, str(self.mirrored), str(self.keys)]
        return subprocess.Popen(command, stderr=subprocess.DEVNULL)


def _compared(name: str, own: Rows, copy: Path, deadline: float) -> Counter[str]:
    """Rows of a copy that are lost or doubled, once it is complete or the time for that is over."""
    while any(len(rows(copy)[table]) < len(own[table]) for table in own) and time.monotonic() < deadline:
        time.sleep(0.2)
    counts: Counter[str] = Counter()
    for table, numbers in rows(copy).items():
        counts[f"{name} lost"] += len(set(own[table]) - set(numbers))
        counts[f"{name} doubled"] += len(numbers) - len(set(numbers))
    return counts


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def play(folder: Path, keys: Path, most: int, dice: random.Random) -> tuple[Counter[str], Counter[str], float]:
    """One round of at most so many kills: those, the counts of its rows, and the oldest row that a killed rank did not keep."""
    folder.mkdir()
    playing, done, last = Round(folder, keys), Counter[str](), 0.0
    while playing.trains and not all(rank.times for rank in playing.ranks):
        time.sleep(0.1)
    while done.total() < most and (not last or time.monotonic() < last):
        time.sleep(dice.uniform(0.2, 1.5))
        what = dice.choices(("rank", "collector", "notebook"), (1, 4, 4))[0]
        done[what] += playing.kill(what, dice)
        if not last and not playing.trains:
            last = time.monotonic() + AFTER_S
    return done, *playing.end()


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description="Rows lost or doubled over random kills.")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    dice, done, counts, oldest, number = random.Random(options.seed), Counter[str](), Counter[str](), 0.0, 0
    with tempfile.TemporaryDirectory() as scratch:
        keys = Path(scratch, "keys")
        transport.make_keys(keys)
        while done.total() < options.kills:
            kills, seen, age = play(Path(scratch, str(number)), keys, options.kills - done.total(), dice)
            done, counts, oldest, number = done + kills, counts + seen, max(oldest, age), number + 1
            print(f"round {number}: {dict(kills)} {dict(seen)}, oldest lost {1e3 * age:.0f} ms", flush=True)
    copies = [f"{copy} {how}" for copy in ("collector", "notebook") for how in ("lost", "doubled")]
    names = ["rows of notes", "rows of steps", "rank lost", *copies]
    found = {name: counts[name] for name in names} | {"killed rank's oldest lost row, ms": 1e3 * oldest}
    for name, value in ({"kills": done.total(), "rounds": number} | found).items():
        print(f"{name:<34} {value:,.0f}")
    if options.out:
        write(options.out, {"kills": dict(done), "rounds": number, **found})


if __name__ == "__main__":
    main()
