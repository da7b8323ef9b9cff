# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The collector on one core: simulated ranks ship over loopback with CURVE, each a batch of collectives every 100 ms.

Ranks and collector run on a core each. What is counted was acknowledged, and is read back at the end. Run:
python benchmarks/collector.py [--ranks 2000] [--rows 25] [--seconds 10] [--out FILE]
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import struct
import tempfile
import threading
import time
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import zmq
from interleaved import write

from dtscope_jupyter import schema, store, transport
from dtscope_jupyter.transport import wire
from dtscope_jupyter.transport.collector import Collector
from dtscope_jupyter.transport.keys import load_client, load_collector

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from dtscope_jupyter.transport.keys import ClientKeys

_ENTRY = struct.Struct("<QIIIHHI")
_PERIOD_S = 0.1


def blocks(rows: int) -> tuple[bytes, bytes]:
    """The schema message and a batch of `rows` collectives, as store.py writes them."""
    arrow = schema.TABLES["collectives"].arrow
    given: dict[str, Any] = {"rank": 0, "process_group": "0", "operation": "all_reduce", "source": "event", "bytes": 26_214_400}
    counting = [1_700_000_000_000_000_000 + 37_000 * i for i in range(rows)]
    columns = {name: [given.get(name)] * rows for name in arrow.names}
    batch = pa.record_batch(columns | dict.fromkeys(("enqueue_ns", "start_ns", "end_ns", "seq", "step"), counting), schema=arrow)
    return arrow.serialize().to_pybytes(), batch.serialize().to_pybytes()


class Rank:
    """One simulated rank: a connection, and how far its file has come."""

    def __init__(self, context: zmq.Context[Any], endpoint: str, keys: ClientKeys, rank: int) -> None:
        """Connects; nothing is sent yet."""
        self.socket = context.socket(zmq.DEALER)
        self.socket.curve_publickey, self.socket.curve_secretkey = keys.public.encode(), keys.secret.encode()
        self.socket.curve_serverkey = keys.collector.encode()
        self.socket.connect(endpoint)
        self.socket.send(wire.encode(wire.Hello(wire.PROTOCOL, wire.Place("bench", 0, rank), f"{rank:032x}")))
        self.end = 0
        self.rows = 0
        self.waiting = True
        self.due = 0.0

    def answer(self) -> None:
        """Takes an acknowledgement."""
        reply = wire.decode_reply(self.socket.recv())
        assert isinstance(reply, wire.Welcome | wire.Ack), reply
        self.waiting = False

    def ship(self, batch: bytes, check: int, rows: int, count: int, head: tuple[bytes, int] | None) -> None:
        """Sends `count` batches, after the schema message `head` where that is to come first."""
        before, entries = self.end, b""
        pieces = [(head[0], head[1], 0, 0)] if head else []
        for data, crc, number, kind in [*pieces, *[(batch, check, rows, 1)] * count]:
            entry = _ENTRY.pack(self.end, len(data), crc, number, schema.VERSION, kind, 0)
            entries += entry + struct.pack("<I", zlib.crc32(entry))
            self.end += len(data)
        data = (head[0] if head else b"") + batch * count
        part = wire.Part("table", "collectives", before, len(entries), len(entries) + len(data))
        self.socket.send_multipart([wire.encode(wire.Ship(1, [part])), entries + data])
        self.waiting = True
        self.rows += rows * count


class Ranks:
    """Simulated ranks in one process."""

    def __init__(self, endpoint: str, keys: Path, count: int, rows: int) -> None:
        """Says hello for each and waits for all the welcomes."""
        self._context: zmq.Context[Any] = zmq.Context()
        self._context.set(zmq.MAX_SOCKETS, count + 16)
        client, (first, batch) = load_client(keys), blocks(rows)
        self._first, self._batch, self._rows = (first, zlib.crc32(first)), (batch, zlib.crc32(batch)), rows
        self._poller = zmq.Poller()
        self._ranks = {rank.socket: rank for rank in (Rank(self._context, endpoint, client, number) for number in range(count))}
        for socket in self._ranks:
            self._poller.register(socket, zmq.POLLIN)
        self._settle()

    def run(self, seconds: float) -> tuple[int, float]:
        """Ships at the pace for `seconds`; rows acknowledged, and how long it took."""
        begin = time.monotonic()
        for number, rank in enumerate(self._ranks.values()):
            rank.due = begin + _PERIOD_S * number / len(self._ranks)
        while (now := time.monotonic()) < begin + seconds:
            for rank in self._ranks.values():
                if not rank.waiting and now >= rank.due:
                    self._ship(rank, now)
            self._take(5)
        self._settle()
        return sum(rank.rows for rank in self._ranks.values()), time.monotonic() - begin

    def close(self) -> None:
        """Hangs up."""
        self._context.destroy(linger=0)

    def _ship(self, rank: Rank, now: float) -> None:
        batches = 1 + int((now - rank.due) / _PERIOD_S)
        rank.due += batches * _PERIOD_S
        rank.ship(*self._batch, self._rows, batches, self._first if rank.end == 0 else None)

    def _take(self, timeout: int) -> None:
        for socket, _ in self._poller.poll(timeout):
            self._ranks[socket].answer()

    def _settle(self) -> None:
        while any(rank.waiting for rank in self._ranks.values()):
            self._take(1000)


def ranks_main(pipe: Connection, endpoint: str, keys: Path, count: int, rows: int, seconds: float) -> None:
    """Simulates `count` ranks on core 1; sends back rows acknowledged and the time they took."""
    os.sched_setaffinity(0, {1})
    _all_files()
    ranks = Ranks(endpoint, keys, count, rows)
    pipe.send(ranks.run(seconds))
    ranks.close()


def collector_main(pipe: Connection, folder: Path, keys: Path) -> None:
    """The collector on core 0; sends its endpoint, and at the end its CPU time and largest memory."""
    os.sched_setaffinity(0, {0})
    stop = threading.Event()
    collector = Collector("tcp://127.0.0.1:0", folder, load_collector(keys))
    pipe.send(collector.endpoint)
    thread = threading.Thread(target=collector.run, args=(stop,))
    thread.start()
    for _ in range(2):
        pipe.recv()
        usage = resource.getrusage(resource.RUSAGE_SELF)
        pipe.send((usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, collector.counts.rows, collector.counts.messages))
    stop.set()
    thread.join()


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description="The collector on one core.")
    parser.add_argument("--ranks", type=int, default=2000)
    parser.add_argument("--rows", type=int, default=25, help="rows a batch")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as scratch:
        folder, keys = Path(scratch, "runs"), Path(scratch, "keys")
        transport.make_keys(keys)
        ours, theirs = context.Pipe()
        collector = context.Process(target=collector_main, args=(theirs, folder, keys))
        collector.start()
        endpoint = ours.recv()
        mine, its = context.Pipe()
        ranks = context.Process(target=ranks_main, args=(its, endpoint, keys, options.ranks, options.rows, options.seconds))
        ranks.start()
        rows, seconds = mine.recv()
        ours.send("usage")
        cpu, memory, written, messages = ours.recv()
        ours.send("end")
        ours.recv()
        collector.join()
        ranks.join()
        readers = (store.BlockReader(folder / "bench" / f"rank-{rank:04d}", "collectives") for rank in range(options.ranks))
        read_back = sum(block.rows for reader in readers for block in iter_blocks(reader))
    print(f"{options.ranks} ranks, a batch of {options.rows} rows each 100 ms, {seconds:.1f} s")
    print(f"rows/s {rows / seconds:,.0f}   messages/s {messages / seconds:,.0f}   CPU {cpu:.1f} s   memory {memory:.0f} MiB")
    print(f"rows acknowledged {rows:,}  written {written:,}  read back {read_back:,}")
    if options.out:
        result = {"ranks": options.ranks, "rows_per_s": rows / seconds, "cpu_s": cpu, "memory_mib": memory}
        write(options.out, result | {"lost_or_doubled": read_back - rows})


def iter_blocks(reader: store.BlockReader) -> list[store.Block]:
    """All blocks of a table."""
    found = []
    while blocks_read := reader.poll():
        found += blocks_read
    return found


def _all_files() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


if __name__ == "__main__":
    main()
