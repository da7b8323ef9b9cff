# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""What the pump sends of a real run directory, read back with pyarrow."""

from __future__ import annotations

import json
import os
import re
import threading
import time
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dtscope_jupyter as dts
from dtscope_jupyter import rundir, schema
from dtscope_jupyter.errors import DtscopeError
from dtscope_jupyter.run import Run
from dtscope_jupyter.store import BlockWriter
from dtscope_jupyter.view import live_ranks, offline
from dtscope_jupyter.view.live import LiveView, save_html, show
from dtscope_jupyter.view.live_pack import Message, of_tables
from dtscope_jupyter.view.live_tail import RunTail
from dtscope_jupyter.view.pump import WINDOW, Pump, Window
from dtscope_jupyter.view.widget import Panels
from tests.view_tables import ddp
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

Part = dict[str, Any]


def unpack(data: bytes) -> tuple[dict[str, Any], list[bytes]]:
    """As js/src/container.ts does."""
    length = int.from_bytes(data[:4], "little")
    header, place = json.loads(data[4 : 4 + length]), -(-(4 + length) // 8) * 8
    buffers = []
    for size, crc in zip(header["sizes"], header["crcs"], strict=True):
        assert place % 8 == 0
        buffers.append(data[place : place + size])
        assert zlib.crc32(buffers[-1]) == crc
        place = -(-(place + size) // 8) * 8
    return header, buffers


def tables_of(header: dict[str, Any], buffers: list[bytes], schemas: dict[int, bytes] | None = None) -> dict[str, pa.Table]:
    """Decodes a message by the schemas that it, or an earlier one, carries."""
    schemas = {} if schemas is None else schemas
    schemas |= {entry["id"]: buffers[entry["buffer"]] for entry in header.get("schemas", [])}
    found: dict[str, list[pa.Table]] = {}
    for part in header.get("parts", []):
        stream = schemas[part["schema"]] + b"".join(buffers[place] for place in part["buffers"])
        found.setdefault(part["table"], []).append(pa.ipc.open_stream(stream).read_all())
    return {name: pa.concat_tables(parts) for name, parts in found.items()}


class Seen(Panels):
    """Panels that keep what they sent."""

    def __init__(self) -> None:
        self.messages: list[tuple[dict[str, Any], list[bytes]]] = []
        super().__init__(world_size=2)

    def send(self, content: dict[str, Any], buffers: list[bytes] | None = None) -> None:
        self.messages.append((content, [bytes(buffer) for buffer in buffers or []]))
        super().send(content, buffers)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run directory with two ranks and nothing in them."""
    attempt = rundir.create_attempt(tmp_path / "run", {"name": "run", "world_size": 2})
    for rank in range(2):
        attempt.rank_path(rank).mkdir(mode=0o700)
        rundir.write_json(attempt.rank_path(rank) / "rank.json", {"pid": os.getpid(), "host": "elsewhere"})
    return attempt.path


def writer(folder: Path, rank: int, table: str) -> BlockWriter:
    return BlockWriter(folder / f"rank-{rank:04d}", table)


def steps(rank: int, first: int, count: int) -> pa.RecordBatch:
    rows = [{"rank": rank, "step": step, "start_ns": step, "end_ns": step + 1} for step in range(first, first + count)]
    return pa.RecordBatch.from_pylist(rows, schema=schema.STEPS.arrow)


def status() -> dict[str, Any]:
    return {"title": "run", "world_size": 2, "state": "waiting", "message": "", "live": True, "backend": None, "ranks": {}}


class TestPack:
    @given(st.lists(st.binary(max_size=40), max_size=6), st.dictionaries(st.text(max_size=8), st.integers()))
    def test_comes_back_as_it_was(self, buffers: list[bytes], header: dict[str, int]) -> None:
        header = {key: value for key, value in header.items() if key not in ("sizes", "crcs")}
        found, back = unpack(Message(dict(header), list(buffers)).pack())
        assert back == buffers
        assert {key: value for key, value in found.items() if key not in ("sizes", "crcs")} == header

    def test_whole_tables_keep_every_row(self) -> None:
        tables = ddp(ranks=3, steps=5)
        found = tables_of(*unpack(of_tables(tables, {}).pack()))
        for name, table in tables.items():
            assert found[name].equals(table) if len(table) else name not in found, name


class TestTail:
    def test_hands_on_each_row_once_whoever_came_later(self, folder: Path) -> None:
        tail, schemas, seen = RunTail(folder), dict[int, bytes](), []
        late = None
        with_schemas = Message()
        for number, table in enumerate(schema.TABLES.values()):
            with_schemas.add_schema(number, table.arrow.serialize().to_pybytes())
        tables_of(with_schemas.header, with_schemas.buffers, schemas)
        first = writer(folder, 0, "steps")
        for turn in range(6):
            first.append(steps(0, turn * 10, 10))
            if turn == 3:
                late = writer(folder, 1, "steps")
            if late:
                late.append(steps(1, turn * 10, 10))
            tail.look()
            message = Message()
            tail.poll(2**20).fill(message)
            seen.append(tables_of(message.header, message.buffers, schemas)["steps"])
        rows = pa.concat_tables(seen).to_pydict()
        assert sorted(zip(rows["rank"], rows["step"], strict=True)) == [(0, s) for s in range(60)] + [(1, s) for s in range(30, 60)]
        assert tail.skipped == 0

    def test_leaves_out_the_oldest_where_all_is_too_much_and_counts_it(self, folder: Path) -> None:
        file = writer(folder, 0, "collectives")
        rows = [{"rank": 0, "step": 0, "process_group": "0", "operation": "all_reduce"}] * 50
        size = 0
        for step in range(40):
            batch = pa.RecordBatch.from_pylist([row | {"step": step} for row in rows], schema=schema.COLLECTIVES.arrow)
            size = file.append(batch)
        tail = RunTail(folder)
        tail.look()
        delta = tail.poll(int(5.5 * size / 0.6))  # its own share of a fifth, and that of the steps, which have nothing to send
        kept = [block.batch().column("step")[0].as_py() for block in delta.blocks["collectives", 1]]
        assert kept == list(range(35, 40))
        assert tail.skipped == 35 * 50
        assert not tail.poll(2**20)

    def test_begins_with_the_newest_where_that_is_enough(self, folder: Path) -> None:
        file = writer(folder, 0, "steps")
        sizes = [file.append(pa.RecordBatch.from_pylist([{"rank": 0, "step": step}], schema=schema.STEPS.arrow)) for step in range(60)]
        ranks = RunTail(folder).look()
        tail = RunTail(folder, newest=3 * sizes[-1] * len(ranks))
        tail.look()
        delta = tail.poll(2**20)
        assert [block.batch().column("step")[0].as_py() for block in delta.blocks["steps", 0]] == [57, 58, 59]
        file.append(pa.RecordBatch.from_pylist([{"rank": 0, "step": 60}], schema=schema.STEPS.arrow))
        assert [block.rows for block in tail.poll(2**20).blocks["steps", 0]] == [1]
        assert tail.skipped == 0

    def test_counts_a_damaged_block_and_goes_on(self, folder: Path) -> None:
        file = writer(folder, 0, "steps")
        file.append(steps(0, 0, 5))
        file.append(steps(0, 5, 5))
        path = folder / "rank-0000" / "steps.arrows"
        data = bytearray(path.read_bytes())
        data[len(schema.STEPS.arrow.serialize()) + 50] ^= 1
        path.write_bytes(data)
        tail = RunTail(folder)
        tail.look()
        assert [block.rows for block in tail.poll(2**20).blocks["steps", 0]] == [5]
        assert tail.damaged == 1

    def test_logs_come_in_whole_characters_and_only_their_end(self, folder: Path) -> None:
        log = folder / "rank-0001" / "log.txt"
        log.write_bytes(b"x" * 100_000 + "ä\n".encode()[:1])
        tail = RunTail(folder)
        tail.look()
        assert len(tail.poll(2**20).log[1]) == 64 * 1024 - 1
        with log.open("ab") as file:
            file.write("ä\n".encode()[1:])
        assert tail.poll(2**20).log[1] == "ä\n"


class TestWindow:
    @given(st.lists(st.sampled_from(["send", "ack", "stale"]), max_size=60))
    def test_never_lets_more_be_under_way(self, acts: list[str]) -> None:
        window, now, answered = Window(), 0.0, False
        for act in acts:
            now += 0.1
            if act == "send" and window.may_send(now):
                window.next(now)
            elif act == "ack" and window.sent >= 0:
                window.acknowledge(window.sent, now)
                answered = True
            elif act == "stale":
                window.acknowledge(10_000, now)
            if answered and now < 2:
                assert window.sent - window.acknowledged <= WINDOW
            assert window.acknowledged <= window.sent

    def test_sends_on_where_nobody_ever_answers_and_slowly_where_they_stopped(self) -> None:
        window = Window()
        for _ in range(50):
            assert window.may_send(0)
            window.next(0)
        window.acknowledge(0, 0)
        assert not window.may_send(1)
        assert window.may_send(3)
        window.next(3)
        assert not window.may_send(3.5)


class TestPump:
    def test_sends_every_row_in_frames_that_follow_each_other(self, folder: Path) -> None:
        widget, sent = Seen(), threading.Event()
        pump = Pump(folder, widget, status())
        pump.start()
        files = [writer(folder, rank, "steps") for rank in range(2)]
        for turn in range(30):
            for rank, file in enumerate(files):
                file.append(steps(rank, turn * 2, 2))
            sent.wait(0.02)
        pump.finish("finished", "")
        frames = [header["frame"] for header, _ in widget.messages]
        assert frames == list(range(len(frames)))
        schemas: dict[int, bytes] = {}
        tables_of(*unpack(widget.snapshot), schemas)
        rows = pa.concat_tables([t["steps"] for t in (tables_of(h, b, schemas) for h, b in widget.messages) if "steps" in t])
        assert sorted(rows["step"].to_pylist()) == sorted(list(range(60)) * 2)
        assert widget.messages[-1][0]["status"]["state"] == "finished"

    def test_leaves_everything_for_pages_to_come(self, folder: Path) -> None:
        widget = Seen()
        pump = Pump(folder, widget, status())
        writer(folder, 0, "steps").append(steps(0, 0, 7))
        (folder / "rank-0000" / "log.txt").write_text("hello\n")
        pump.start()
        pump.finish("failed", "rank 1: boom")
        header, buffers = unpack(widget.snapshot)
        assert tables_of(header, buffers)["steps"].num_rows == 7
        assert header["log"] == [{"rank": 0, "text": "hello\n"}]
        assert (header["reset"], header["status"]["state"], header["status"]["message"]) == (True, "failed", "rank 1: boom")
        assert header["frame"] == widget.messages[-1][0]["frame"]

    def test_answers_a_page_that_came_late_with_all_of_it(self, folder: Path) -> None:
        widget = Seen()
        pump = Pump(folder, widget, status())
        writer(folder, 0, "steps").append(steps(0, 0, 7))
        pump.start()
        until(lambda: any("parts" in header for header, _ in widget.messages))
        widget._handle_custom_msg({"kind": "hello"}, [])
        until(lambda: any(header.get("reset") for header, _ in widget.messages))
        pump.finish("finished", "")
        header, buffers = next(message for message in widget.messages if message[0].get("reset"))
        assert tables_of(header, buffers)["steps"].num_rows == 7

    def test_tells_pages_which_of_their_acknowledgements_was_heard(self, folder: Path) -> None:
        widget = Seen()
        pump = Pump(folder, widget, status())
        file = writer(folder, 0, "steps")
        file.append(steps(0, 0, 1))
        pump.start()
        until(lambda: len(widget.messages) == 1)
        widget._handle_custom_msg({"kind": "ack", "frame": 0}, [])
        file.append(steps(0, 1, 1))
        until(lambda: len(widget.messages) == 2)
        pump.finish("finished", "")
        assert [header["heard"] for header, _ in widget.messages[:2]] == [-1, 0]

    def test_at_most_ten_messages_a_second(self, folder: Path) -> None:
        widget = Seen()
        pump = Pump(folder, widget, status())
        file = writer(folder, 0, "steps")
        pump.start()
        began = time.monotonic()
        step = 0
        while time.monotonic() - began < 1:
            file.append(steps(0, step, 1))
            step += 1
        sent = len(widget.messages)
        assert sent <= 2 + 10 * (time.monotonic() - began)
        pump.finish("finished", "")

    def test_sees_the_end_of_a_run_that_others_started(self, folder: Path) -> None:
        widget = Seen()
        pump = Pump(folder, widget, status())
        writer(folder, 0, "steps").append(steps(0, 0, 1))
        pump.start()
        rundir.write_json(folder / "run.json", {"state": "failed", "message": "rank 0: boom", "ended_ns": 1})
        until(lambda: any(header.get("status", {}).get("state") == "failed" for header, _ in widget.messages))
        pump.finish("detached", "")


class TestRanks:
    def test_tells_running_silent_and_exited(self, folder: Path) -> None:
        import socket

        identity = {"pid": os.getpid(), "host": socket.gethostname()}
        paths = [folder / f"rank-{rank:04d}" / "rank.json" for rank in range(2)]
        for path in paths:
            rundir.write_json(path, identity)
        assert live_ranks.states(folder, [0, 1]) == {"0": "running", "1": "running"}
        for path in paths:
            os.utime(path, (0, 0))
        assert live_ranks.states(folder, [0]) == {"0": "silent"}
        pid = os.fork()
        if not pid:
            os._exit(0)
        os.waitpid(pid, 0)
        rundir.write_json(paths[1], identity | {"pid": pid})
        os.utime(paths[1], (0, 0))
        assert live_ranks.states(folder, [1, 7]) == {"1": "exited"}


class TestView:
    def test_text_is_the_same_in_every_session(self, folder: Path) -> None:
        view = LiveView(folder, world_size=2, title="run")
        assert repr(view) == "dtscope: panels of 2 ranks (shown while the kernel runs)"
        assert view._repr_mimebundle_()[0]["text/plain"] == repr(view)

    def test_one_panel_of_a_finished_run(self) -> None:
        run = Run(ddp(ranks=2, steps=4), name="made", world_size=2)
        view = show(run, "timeline", rank=1, step=2)
        assert (view.widget.panel, view.widget.place, view.widget.live) == ("timeline", {"rank": 1, "step": 2}, False)
        header, buffers = unpack(view.widget.snapshot)
        assert tables_of(header, buffers)["steps"].num_rows == 8
        assert header["status"]["state"] == "finished"

    @pytest.mark.parametrize(("panel", "rank", "said"), [("nope", None, "no panel 'nope'"), ("overlap", 9, "rank 9 is not in this run")])
    def test_says_what_it_does_not_have(self, panel: str, rank: int | None, said: str) -> None:
        with pytest.raises(DtscopeError, match=re.escape(said)):
            show(Run(ddp(ranks=2, steps=2), world_size=2), panel, rank=rank)

    def test_says_which_steps_there_are(self) -> None:
        with pytest.raises(DtscopeError, match=re.escape("nothing of step 99 is recorded in this run; its steps lie from 0 to 1")):
            show(Run(ddp(ranks=2, steps=2), world_size=2), "timeline", step=99)


class TestOffline:
    def test_is_one_file_that_asks_for_nothing(self, tmp_path: Path) -> None:
        run = Run(ddp(ranks=2, steps=4), name="<b>made</b>", world_size=2)
        page = save_html(run, tmp_path / "run.html").read_text()
        assert "default-src 'none'" in page
        assert "<b>made" not in page
        assert not re.findall(r"(?:src|href)\s*=\s*[\"'](?!data:|#)", page.split("<script>", maxsplit=1)[0])
        assert len(page) < 2**21

    def test_the_largest_capture_stays_small(self, captures: Path, tmp_path: Path) -> None:
        run = dts.open(captures / "h200" / "ddp_small_buckets")
        assert save_html(run, tmp_path / "run.html").stat().st_size < 2**21

    def test_keeps_the_newest_steps_of_what_does_not_fit(self) -> None:
        table = pa.table({"step": np.repeat(np.arange(100), 50), "x": np.zeros(5000)})
        kept = offline._newest(table, table.nbytes // 4)
        assert sorted(set(kept["step"].to_pylist())) == list(range(100 - len(kept) // 50, 100))
        assert 0.2 < len(kept) / len(table) <= 0.25
        assert len(offline._newest(table, 0)) == 0

    def test_gives_the_whole_map_where_the_rows_are_too_many(self) -> None:
        tables = ddp(ranks=3, steps=40)
        timed = np.array([step % 4 == 0 for step in tables["steps"]["step"].to_pylist()])
        for name, known in (("exposed_ms", np.ones(len(timed), bool)), ("comm_ms", timed)):
            at = tables["steps"].schema.get_field_index(name)
            tables["steps"] = tables["steps"].set_column(at, tables["steps"].schema.field(name), pa.array(np.ones(len(timed)), mask=~known))
        run = Run(tables, name="made", world_size=3)
        header, buffers = unpack(offline.message(run, run.tables["steps"].nbytes // 2).pack())
        assert tables_of(header, buffers)["steps"].num_rows < 120
        found = {entry["metric"]: entry for entry in header["matrices"]}
        assert found.keys() == {"exposed", "ratio", "step", "evidence"}
        evidence = np.frombuffer(buffers[found["evidence"]["buffer"]], "<f4").reshape(3, 40)
        assert evidence.tolist() == [[float(step % 4 == 0) for step in range(40)]] * 3, "recorded collectives, else the rank's own word"
        cells = np.frombuffer(buffers[found["step"]["buffer"]], "<f4").reshape(3, 40)
        rows = run.tables["steps"].to_pydict()
        for rank, step, start, end in zip(*(rows[name] for name in ("rank", "step", "start_ns", "end_ns")), strict=True):
            assert cells[rank, step] == np.float32((end - start) / 1e6)

    def test_can_not_be_written(self, tmp_path: Path) -> None:
        with pytest.raises(DtscopeError, match="can't write"):
            save_html(Run(ddp(ranks=1, steps=1)), tmp_path / "no" / "run.html")
