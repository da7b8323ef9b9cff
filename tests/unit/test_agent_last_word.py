# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""What a rank says of the exception that ends it: type, message and line in one line, and the lost peer behind it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from dtscope_jupyter import process, rundir, vanished
from dtscope_jupyter.agent import last_word
from dtscope_jupyter.agent.config import Config
from dtscope_jupyter.agent.core import Agent
from dtscope_jupyter.store import BlockReader


class MuteError(ValueError):
    def __str__(self) -> str:
        raise RuntimeError


def words(error: BaseException) -> str:
    return last_word._words(error, error.__traceback__)


def fail(error: Exception, cause: Exception | None = None) -> None:
    raise error from cause


def test_type_message_and_line_in_one_line() -> None:
    with pytest.raises(ValueError, match="bad batch") as caught:
        fail(ValueError("bad batch\nof many lines"))
    assert words(caught.value) == f"ValueError: bad batch ({__file__}:{fail.__code__.co_firstlineno + 1})"


def test_the_line_is_the_user_s_where_torch_raises() -> None:
    import torch

    with pytest.raises(RuntimeError) as caught:
        torch.nn.Linear(2, 3)(torch.ones(4, 5))
    assert words(caught.value).endswith(f"({__file__}:{caught.traceback[0].lineno + 1})")


def test_a_message_that_fails_and_none_at_all() -> None:
    assert words(MuteError()) == "MuteError: <no text: RuntimeError>"
    assert words(KeyError()) == "KeyError"


def test_a_lost_peer_behind_an_exception_is_named() -> None:
    with pytest.raises(ValueError, match="training") as caught:
        fail(ValueError("training failed"), RuntimeError("pair.cc: Connection reset by peer"))
    assert words(caught.value).endswith(", Connection reset by peer")


@pytest.mark.parametrize(("status", "told"), [
    (3, ("SystemExit", 3.0, "left by sys.exit with code 3")),
    ("no data", ("SystemExit", 1.0, "left by sys.exit with code 1 (no data)")),
    (None, ("end", 0.0, "ended by itself")),
])  # fmt: skip
def test_a_rank_that_leaves_by_sys_exit_tells_the_code(tmp_path: Path, status: object, told: tuple[str, float, str]) -> None:
    agent = Agent(Config(folder=tmp_path, rank=0, world_size=1, local_rank=0))
    agent.start()
    word = last_word.LastWord(agent)
    with pytest.raises(SystemExit) as caught:
        word._around_exit(sys.exit)(status)
    assert caught.value.code == status
    word._at_exit()
    word._stopped()
    agent.finish()
    (row,) = pa.Table.from_batches(BlockReader(tmp_path, "notes").batches()).to_pylist()
    assert (row["kind"], row["name"], row["value"], row["text"]) == ("exit", *told)


def test_a_rank_that_never_recorded_says_nothing(tmp_path: Path) -> None:
    agent = Agent(Config(folder=tmp_path, rank=0, world_size=1, local_rank=0))
    last_word.LastWord(agent)._at_exit()
    agent.finish()
    assert not list(tmp_path.glob("*.arrows"))


def test_an_exit_upon_an_exception_tells_that_too(tmp_path: Path) -> None:
    word = last_word.LastWord(Agent(Config(folder=tmp_path, rank=0, world_size=1, local_rank=0)))
    try:
        fail(KeyError("key"))
    except KeyError:
        with pytest.raises(SystemExit):
            word._around_exit(sys.exit)(1)
    assert word._left is not None
    assert word._left[2].startswith(" upon KeyError: 'key' (")


def test_a_rank_is_gone_only_where_that_is_sure(tmp_path: Path) -> None:
    gone = subprocess.Popen(["sleep", "60"])
    start = process.started(gone.pid)
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    identity = {
        "says_end": True,
        "host": socket.gethostname(),
        "boot_id": boot,
        "pid_namespace": process.namespace(),
        "pid": gone.pid,
        "started": start,
    }
    folder = tmp_path / "rank-0001"
    folder.mkdir()

    def told(said: tuple[int, ...] = (), **other: object) -> list[int]:
        rundir.write_json(folder / "rank.json", identity | other)
        return [row["rank"] for row in vanished.notes(rundir.Attempt(tmp_path, 0), said)]

    assert told() == []
    gone.kill()
    while not process.has_ended(gone.pid, start or 0):
        pass
    assert told() == [1]
    gone.wait()
    assert told() == [1]
    assert told(said=(1,)) == []
    unsure = (
        {"says_end": None},
        {"host": "elsewhere"},
        {"boot_id": "another"},
        {"pid_namespace": 1},
        {"pid_namespace": None},
        {"pid": "x"},
    )
    assert [told(**other) for other in unsure] == [[]] * len(unsure)
    assert told(pid=os.getpid(), started=process.started(os.getpid())) == []
    assert told(pid=os.getpid(), started=0) == [1]
