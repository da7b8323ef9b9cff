# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Attaching to what is hostile, private, gone or of another release: one clear line, and nothing outside of it is touched."""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import resource
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import dtscope_jupyter as dts
from dtscope_jupyter import asking, attaching, rundir, schema, session, store
from dtscope_jupyter.agent import control, recorder
from dtscope_jupyter.errors import DtscopeError
from dtscope_jupyter.transport import wire

if TYPE_CHECKING:
    from collections.abc import Iterator

NOBODY = 65534
LISTEN = """
import os, socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
os.setuid(65534)
listener.listen()
print(flush=True)
sys.stdout.write(repr(listener.accept()[0].recv(100)))
"""


@contextlib.contextmanager
def as_another_user(folder: Path) -> Iterator[None]:
    """Nobody, where we are root; else ourselves, before a folder that is closed to us."""
    if os.geteuid() == 0:
        folder.parent.chmod(0o755)
        for parent in folder.parents:
            if parent.owner() == "root" and str(parent).startswith("/tmp/pytest"):
                parent.chmod(0o755)
        os.seteuid(NOBODY)
    else:
        folder.chmod(0)
    try:
        yield
    finally:
        if os.getuid() == 0:
            os.seteuid(0)
        else:
            folder.chmod(0o700)


@pytest.fixture
def attempt(tmp_path: Path) -> rundir.Attempt:
    made = rundir.create_attempt(tmp_path / "run", {"name": "run", "world_size": 1, "created_ns": time.time_ns()})
    made.rank_path(0).mkdir(mode=0o700)
    rundir.write_json(made.rank_path(0) / "rank.json", {"rank": 0})
    writer = store.BlockWriter(made.rank_path(0), "steps")
    writer.append(pa.RecordBatch.from_pylist([{"rank": 0, "step": 0, "start_ns": 1, "end_ns": 2}], schema=schema.STEPS.arrow))
    writer.close()
    return made


def refusal(target: str) -> str:
    with pytest.raises(DtscopeError) as caught:
        attaching.attach(target, session.Session())
    assert "\n" not in str(caught.value)
    return str(caught.value)


class TestSocket:
    def test_a_link_in_its_place_is_not_followed(self, attempt: rundir.Attempt, tmp_path: Path) -> None:
        heard: list[bytes] = []
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(tmp_path / "elsewhere.sock"))
            listener.listen()
            listener.settimeout(0.5)
            (attempt.rank_path(0) / control.SOCKET).symlink_to(tmp_path / "elsewhere.sock")
            with pytest.raises(DtscopeError, match=r"control.sock is no socket; somebody else may have put it there"):
                control.ask(attempt.rank_path(0), {"command": "status"})
            with contextlib.suppress(TimeoutError):
                heard.append(listener.accept()[0].recv(100))
        assert not heard

    def test_a_file_or_a_pipe_in_its_place(self, attempt: rundir.Attempt) -> None:
        place = attempt.rank_path(0) / control.SOCKET
        for make in (Path.touch, os.mkfifo):
            make(place)
            assert asking.ask_ranks(attempt, {"command": "status"})[0]["ok"] is False
            place.unlink()

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user too")
    def test_another_users_socket_is_not_told_anything(self, attempt: rundir.Attempt) -> None:
        path = attempt.rank_path(0) / control.SOCKET
        other = subprocess.Popen([sys.executable, "-c", LISTEN, str(path)], stdout=subprocess.PIPE, text=True)
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(DtscopeError, match="user 65534 listens there; it is not the one whose run this is"):
            control.ask(attempt.rank_path(0), {"command": "status"})
        assert other.communicate(timeout=100)[0] == "b''"

    def test_an_answer_that_is_none(self, attempt: rundir.Attempt) -> None:
        with socket.socket(socket.AF_UNIX) as listener:
            with control.short_path(attempt.rank_path(0)) as path:
                listener.bind(path)
            listener.listen()

            def answer() -> None:
                for reply in (pickle.dumps({"ok": True}), b"[1]\n", b"x" * 200_000):
                    with listener.accept()[0] as connection, contextlib.suppress(OSError):
                        connection.sendall(reply)

            thread = threading.Thread(target=answer)
            thread.start()
            for _ in range(3):
                assert asking.ask_ranks(attempt, {"command": "status"})[0]["ok"] is False
            thread.join()


class TestDirectory:
    def test_another_users_run(self, attempt: rundir.Attempt) -> None:
        with as_another_user(attempt.run):
            line = refusal(str(attempt.run))
        assert "who keeps it private" in line if os.getuid() == 0 else "can't be read" in line

    @pytest.mark.parametrize("what", ["", "nothing", "file"])
    def test_no_run(self, tmp_path: Path, what: str) -> None:
        (tmp_path / "file").touch()
        (tmp_path / "empty").mkdir()
        line = refusal(str(tmp_path / (what or "empty")))
        assert ("is no directory" if what else "holds no run") in line

    def test_a_run_of_a_newer_format(self, attempt: rundir.Attempt) -> None:
        rundir.write_json(attempt.run / "run.json", {"format": rundir.FORMAT + 1})
        assert f"was recorded in format {rundir.FORMAT + 1}, this release reads {rundir.FORMAT}: pip install -U" in refusal(
            str(attempt.run)
        )

    def test_links_in_it_lead_nowhere(self, attempt: rundir.Attempt, tmp_path: Path) -> None:
        outside, folder = tmp_path / "outside", attempt.rank_path(0)
        outside.mkdir()
        (outside / "secret.json").write_text('{"name": "secret", "created_ns": 1, "exits": [[0, 1, 5]]}')
        (outside / "secret.txt").write_text("secret\n")
        (folder / "log.txt").symlink_to(outside / "secret.txt")
        (folder / "stacks-000.txt").symlink_to(outside / "secret.txt")
        (folder / "rank.json").unlink()
        (folder / "rank.json").symlink_to(outside / "secret.json")
        (folder / "collectives.arrows").symlink_to(outside / "secret.txt")
        (folder / "collectives.index").symlink_to(outside / "secret.txt")
        (attempt.run / "rank-0001").symlink_to(outside)
        rundir.write_json(attempt.run / "run.json", {"name": "/etc/passwd", "world_size": 1, "exits": [[0, 1, 5]]})
        before = {path: path.stat().st_mtime_ns for path in outside.iterdir()}
        run = dts.open(attempt.run)
        assert run.ranks == [0]
        assert len(run.table("steps")) == 1
        assert "secret" not in str(run.table("notes").to_dict())
        assert "secret" not in run.save_html(tmp_path / "page.html").read_text()
        assert rundir.read_json(folder / "rank.json") == {}
        assert {path: path.stat().st_mtime_ns for path in outside.iterdir()} == before

    def test_names_that_are_none(self, attempt: rundir.Attempt) -> None:
        for name in ("rank-9", "rank-00000000", "rank--001", "attempt-0", "attempt-x", "rank-0000\n", "rank-0001.lock", "..rank-0002"):
            (attempt.run / name).mkdir()
        (attempt.run / "rank-0002").write_text("a file")
        os.mkfifo(attempt.rank_path(0) / "log.txt")
        os.mkfifo(attempt.rank_path(0) / "host.index")
        run = dts.open(attempt.run)
        assert run.ranks == [0]
        assert len(run.table("host")) == 0
        assert run.report() is not None

    def test_a_collector_that_names_other_runs_is_not_believed(self) -> None:
        for run in ("../x", "/etc", "", "rank-0000", "a\n"):
            with pytest.raises(ValueError, match=r"[Ee]xpected|pattern"):
                wire.decode_reply(wire.encode(wire.Following(run, [])))


class TestProcess:
    def test_one_that_is_gone(self) -> None:
        done = subprocess.Popen([sys.executable, "-c", ""])
        done.wait()
        assert f"no process has pid {done.pid}" in refusal(str(done.pid))

    def test_one_that_nobody_has_taken_note_of(self) -> None:
        done = subprocess.Popen([sys.executable, "-c", ""])
        os.waitid(os.P_PID, done.pid, os.WEXITED | os.WNOWAIT)
        assert refusal(str(done.pid)) == f"process {done.pid} ended while it was attached to"
        done.wait()

    def test_those_that_end_meanwhile(self) -> None:
        for tenths in range(30):
            ending = subprocess.Popen(["sleep", f"{tenths / 1000}"])
            threading.Thread(target=ending.wait).start()
            assert str(ending.pid) in refusal(str(ending.pid))


def test_a_full_disk_on_the_rank_is_one_line_and_its_rows_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = recorder.Recorder(tmp_path, 0, 2**30)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def write(times: int) -> None:
        for number in range(times):
            rows.add("host", (number, "gc", number, number + 1, None, "x" * 1000, None))
            rows.flush()

    with caplog.at_level(logging.WARNING):
        write(1)
        resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / "host.arrows").stat().st_size + 100, before[1]))
        try:
            write(5)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        write(2)
    rows.close()
    assert [record.getMessage() for record in caplog.records] == [
        f"dtscope: can't write to {tmp_path}: File too large; rows are lost and counted until there is space"
    ]
    read = {name: [row for batch in store.BlockReader(tmp_path, name).batches() for row in batch.to_pylist()] for name in ("host", "notes")}
    assert [row["step"] for row in read["host"]] == [0, 0, 1]
    assert sum(row["value"] for row in read["notes"] if row["kind"] == "dropped") == 5
