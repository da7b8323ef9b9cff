# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Ranks, collector and notebook as processes; some are killed, and every row arrives once."""

from __future__ import annotations

import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dtscope_jupyter import store, transport
from dtscope_jupyter.errors import DtscopeError
from dtscope_jupyter.transport import clock
from dtscope_jupyter.transport.keys import load_client
from dtscope_jupyter.transport.line import AwayError
from dtscope_jupyter.transport.shipper import Shipper
from tests.waiting import free_port, until

if TYPE_CHECKING:
    from collections.abc import Iterator

WRITER = Path(__file__).parent / "_transport_writer.py"
COLLECT = """
import logging, sys, pathlib
from dtscope_jupyter import transport
logging.basicConfig(level=logging.INFO)
transport.collect(sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]))
"""


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    transport.make_keys(tmp_path / "keys")
    return tmp_path / "keys"


@contextmanager
def _collector(endpoint: str, folder: Path, keys: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A collector process; killed at the end if it lives."""
    process = subprocess.Popen([sys.executable, "-c", COLLECT, endpoint, str(folder), str(keys)], stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _free_endpoint() -> str:
    return f"tcp://127.0.0.1:{free_port()}"


def _rank(folder: Path, rank: int, stop: Path) -> subprocess.Popen[bytes]:
    """A process that writes numbered rows of two tables into a rank folder every few ms, until the file `stop` is there."""
    path = folder / f"rank-{rank:04d}"
    path.mkdir(mode=0o700, parents=True)
    return subprocess.Popen([sys.executable, str(WRITER), str(path), str(rank), str(stop)])


def _values(folder: Path, table: str) -> list[int]:
    return [value for batch in store.BlockReader(folder, table).batches() for value in batch.column("seq").to_pylist()]


def test_rows_arrive_once_whatever_is_killed(tmp_path: Path, keys: Path) -> None:
    endpoint, source, target, stop = _free_endpoint(), tmp_path / "run-a", tmp_path / "collected", tmp_path / "stop"
    dice = random.Random(7)
    ranks = [_rank(source, rank, stop) for rank in range(2)]
    shippers = [transport.ship(source / f"rank-{rank:04d}", endpoint, keys, process.pid) for rank, process in enumerate(ranks)]
    until(lambda: all(len(_values(source / f"rank-{rank:04d}", "collectives")) > 150 for rank in range(2)), "the first rows")
    for kills in range(1, 5):
        came = len(_values(target / "run-a" / "rank-0000", "collectives"))
        with _collector(endpoint, target, keys) as process:
            until(lambda came=came: len(_values(target / "run-a" / "rank-0000", "collectives")) > came, "a row more")  # type: ignore[misc]
            time.sleep(dice.uniform(0.0, 0.8))
            process.kill()
        if kills == 2:
            ranks[1].kill()
        if kills == 3:
            shippers[0].kill()
            shippers[0].wait()
            shippers[0] = transport.ship(source / "rank-0000", endpoint, keys, ranks[0].pid)
    stop.touch()
    with _collector(endpoint, target, keys):
        assert [process.wait(120) for process in shippers] == [0, 0]
    for rank in range(2):
        for table in ("collectives", "notes"):
            mine, theirs = source / f"rank-{rank:04d}", target / "run-a" / f"rank-{rank:04d}"
            for suffix in ("arrows", "index"):
                shipped = (theirs / f"{table}.{suffix}").read_bytes()
                assert (mine / f"{table}.{suffix}").read_bytes()[: len(shipped)] == shipped
        values = _values(source / f"rank-{rank:04d}", "collectives")
        assert values == list(range(len(values)))
        assert _values(target / "run-a" / f"rank-{rank:04d}", "collectives") == values
        assert len(values) > 100
    assert {path.stat().st_mode & 0o777 for path in target.rglob("*") if path.is_file()} == {0o600}
    assert {path.stat().st_mode & 0o777 for path in target.rglob("*") if path.is_dir()} == {0o700}


def test_notebook_follows_and_goes_on_after_a_restart(tmp_path: Path, keys: Path) -> None:
    endpoint, source, target, stop = _free_endpoint(), tmp_path / "run-b", tmp_path / "collected", tmp_path / "stop"
    rank = _rank(source, 0, stop)
    (source / "run.json").write_text('{"format": 1, "name": "b"}')
    (source / "rank-0000" / "log.txt").write_text("hello\n")
    shipper = transport.ship(source / "rank-0000", endpoint, keys, rank.pid)
    with _collector(endpoint, target, keys):
        until((target / "run-b" / "rank-0000" / "collectives.index").exists, "the first block")
        mirror = transport.mirror(endpoint, keys, tmp_path / "mirror")
        copy = mirror.path / "rank-0000"
        until(lambda: _values(copy, "collectives"), "the first row")
        other = transport.mirror(endpoint, keys, tmp_path / "other", "run-b")
        until(lambda: _values(other.path / "rank-0000", "collectives"), "the first row in a second notebook")
        other.stop()
    until(lambda: mirror.away, "word that the collector is away")
    stop.touch()
    with _collector(endpoint, target, keys):
        assert shipper.wait(120) == 0
        values = _values(source / "rank-0000", "collectives")
        until(lambda: len(_values(copy, "collectives")) == len(values), "the rest")
        mirror.stop()
    assert _values(copy, "collectives") == values
    assert (copy / "log.txt").read_text() == "hello\n"
    assert (mirror.path / "run.json").read_text() == (source / "run.json").read_text()
    found = clock.load(source / "rank-0000")
    assert found is not None
    offset = max(time.time_ns() - time.perf_counter_ns() for _ in range(20))  # the one that was read with least between
    assert abs(found.offset_ns - offset) <= found.uncertainty_ns + 10_000_000


def test_another_process_can_not_write_the_same_place(tmp_path: Path, keys: Path) -> None:
    endpoint, target = _free_endpoint(), tmp_path / "collected"
    with _collector(endpoint, target, keys):
        for name in ("x", "y"):
            folder = tmp_path / name / "run-c" / "rank-0000"
            folder.mkdir(parents=True)
            (folder / "log.txt").write_text(name)
        first = Shipper(tmp_path / "x" / "run-c" / "rank-0000", endpoint, load_client(keys))
        assert first.run(lambda: False, 60.0)
        second = Shipper(tmp_path / "y" / "run-c" / "rank-0000", endpoint, load_client(keys))
        with pytest.raises(DtscopeError, match="written by another process"):
            second.run(lambda: False, 60.0)
        first.close()
        second.close()
    assert (target / "run-c" / "rank-0000" / "log.txt").read_text() == "x"


def test_rank_waits_for_a_collector_that_is_away(tmp_path: Path, keys: Path) -> None:
    folder = tmp_path / "run-d" / "rank-0000"
    folder.mkdir(parents=True)
    shipper = Shipper(folder, _free_endpoint(), load_client(keys))
    with pytest.raises(AwayError, match="no answer"):
        shipper.step()
    shipper.close()


def test_nobody_waits_for_a_collector_with_a_folder_that_is_gone(tmp_path: Path, keys: Path) -> None:
    folder = tmp_path / "run-d" / "rank-0000"
    folder.mkdir(parents=True)
    with closing(Shipper(folder, _free_endpoint(), load_client(keys))) as shipper:
        shutil.rmtree(folder)
        with pytest.raises(DtscopeError, match="is gone, with what was not shipped yet"):
            shipper.run(lambda: False, 600.0)


def test_a_full_disk_is_waited_out(tmp_path: Path, keys: Path) -> None:
    endpoint, source, target, stop = _free_endpoint(), tmp_path / "run-f", tmp_path / "collected", tmp_path / "stop"
    with _collector(endpoint, target, keys) as process:
        until(target.exists, "the collector")
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
        rank = _rank(source, 0, stop)
        shipper = transport.ship(source / "rank-0000", endpoint, keys, rank.pid)
        until(lambda: len(_values(source / "rank-0000", "collectives")) > 300, "rows enough to fill it")
        stop.touch()
        rank.wait()
        until(lambda: "refused: disk" in (source / "rank-0000" / "ship.log").read_text(), "word of the full disk")
        values, early = _values(source / "rank-0000", "collectives"), _values(target / "run-f" / "rank-0000", "collectives")
        assert early == values[: len(early)]
        assert len(early) < len(values)
        assert shipper.poll() is None
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert shipper.wait(120) == 0
        assert _values(target / "run-f" / "rank-0000", "collectives") == values


def test_collector_ends_on_a_signal(tmp_path: Path, keys: Path) -> None:
    endpoint = _free_endpoint()
    with _collector(endpoint, tmp_path / "collected", keys) as process:
        shipper = Shipper(_folder(tmp_path), endpoint, load_client(keys))
        assert shipper.run(lambda: False, 60.0)
        shipper.close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def _folder(tmp_path: Path) -> Path:
    folder = tmp_path / "run-e" / "rank-0000"
    folder.mkdir(parents=True)
    (folder / "log.txt").write_text("a line\n")
    return folder


def test_ship_log_names_no_key(tmp_path: Path, keys: Path) -> None:
    folder = _folder(tmp_path)
    process = transport.ship(folder, _free_endpoint(), keys, os.getpid())
    until((folder / "ship.log").read_text, "a line in the log")
    command = Path(f"/proc/{process.pid}/cmdline").read_bytes() + Path(f"/proc/{process.pid}/environ").read_bytes()
    process.kill()
    process.wait()
    secrets = re.findall(r'"secret": *"([^"]+)"', "".join(path.read_text() for path in keys.iterdir()))
    assert len(secrets) == 3
    assert not any(secret.encode() in command or secret in (folder / "ship.log").read_text() for secret in secrets)
