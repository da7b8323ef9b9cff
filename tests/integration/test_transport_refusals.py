# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Who may not talk to the collector, and what it does not take: each is refused, counted and logged."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec
import pytest
import zmq

from dtscope_jupyter import transport
from dtscope_jupyter.errors import DtscopeError
from dtscope_jupyter.transport import keys as key_files
from dtscope_jupyter.transport import wire
from dtscope_jupyter.transport.collector import Collector
from dtscope_jupyter.transport.line import AwayError, Line
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOKEN = "0" * 32
PLACE = wire.Place("run", 0, 0)


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    transport.make_keys(tmp_path / "keys")
    return tmp_path / "keys"


@pytest.fixture
def collector(tmp_path: Path, keys: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """A collector on loopback, in a thread; messages of more than 1 MiB are oversized."""
    monkeypatch.setattr(wire, "MAX_MESSAGE_BYTES", 2**20)
    stop = threading.Event()
    collector = Collector("tcp://127.0.0.1:0", tmp_path / "runs", key_files.load_collector(keys))
    thread = threading.Thread(target=collector.run, args=(stop,))
    endpoint = collector.endpoint
    thread.start()
    yield collector
    stop.set()
    thread.join()
    assert endpoint.startswith("tcp://127.0.0.1:")


class PatientLine(Line):
    """A line that waits as long as a busy machine may take to answer."""

    def ask(self, request: wire.Request, payload: bytes = b"", timeout: float = 60.0) -> tuple[wire.Reply, memoryview]:
        return super().ask(request, payload, timeout)


@pytest.fixture
def line(collector: Collector, keys: Path) -> Iterator[Line]:
    line = PatientLine(collector.endpoint, key_files.load_client(keys))
    yield line
    line.close()


def _works(line: Line) -> bool:
    """Whether a rank with the right key is still served."""
    return isinstance(line.ask(wire.Hello(wire.PROTOCOL, PLACE, TOKEN))[0], wire.Welcome)


def _files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.name != ".origin")


def test_without_a_key(collector: Collector, line: Line, caplog: pytest.LogCaptureFixture) -> None:
    client: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
    client.connect(collector.endpoint)
    client.send(wire.encode(wire.Hello(wire.PROTOCOL, PLACE, TOKEN)))
    with caplog.at_level(logging.WARNING):
        until(lambda: "refused: no CURVE handshake" in caplog.text)
    client.close(linger=0)
    assert collector.gate.refused["no CURVE handshake"] >= 1
    assert collector.counts.messages == 0
    assert _works(line)


def test_without_a_key_whoever_notices_it_first(collector: Collector, line: Line) -> None:
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\x00") + bytes(32)
    with socket.create_connection(("127.0.0.1", int(collector.endpoint.rsplit(":", 1)[1]))) as stranger:
        stranger.sendall(greeting)
        until(collector.gate.refused.total)
    assert dict(collector.gate.refused) == {"no CURVE handshake": 1}
    assert _works(line)


@pytest.mark.parametrize(
    ("wrong", "reason"), [("pair", "unknown key"), ("collector", "a handshake that is damaged or for another collector")]
)
def test_with_a_wrong_key(collector: Collector, line: Line, keys: Path, wrong: str, reason: str) -> None:
    mine = key_files.load_client(keys)
    public, secret = (key.decode() for key in zmq.curve_keypair())
    keys_of_another = (
        key_files.ClientKeys(public, secret, mine.collector) if wrong == "pair" else key_files.ClientKeys(mine.public, mine.secret, public)
    )
    stranger = Line(collector.endpoint, keys_of_another)
    with pytest.raises(AwayError):
        stranger.ask(wire.Hello(wire.PROTOCOL, PLACE, TOKEN), timeout=2.0)
    until(lambda: collector.gate.refused[reason])
    stranger.close()
    assert collector.counts.messages == 0
    assert _works(line)


def test_random_bytes_instead_of_a_handshake(collector: Collector, line: Line) -> None:
    for size in (1, 64, 4096):
        with socket.create_connection(("127.0.0.1", int(collector.endpoint.rsplit(":", 1)[1]))) as stranger:
            stranger.sendall(b"\x00" + secrets.token_bytes(size))
            stranger.settimeout(60)
            with suppress(ConnectionResetError):
                while stranger.recv(4096):
                    pass
    until(lambda: collector.gate.refused.total() + collector.gate.closed >= 3)
    assert collector.counts.messages == 0
    assert _works(line)


def test_a_thousand_connections_that_say_nothing(collector: Collector, line: Line) -> None:
    address = ("127.0.0.1", int(collector.endpoint.rsplit(":", 1)[1]))
    silent = [socket.create_connection(address) for _ in range(1000)]
    assert _works(line)
    until(lambda: collector.gate.refused.total() >= 1000)
    assert _works(line)
    for connection in silent:
        connection.close()


HOSTILE = msgspec.msgpack.encode(["Hello", 1, ["../x", 0, 0], TOKEN])


@pytest.mark.parametrize("raw", [b"", b"\x00", b"\x93\xa5Hello\x01", HOSTILE, bytes(range(256))])
def test_unreadable_messages(collector: Collector, line: Line, keys: Path, raw: bytes) -> None:
    client = _raw(collector, keys)
    client.send_multipart([raw])
    answer = wire.decode_reply(client.recv())
    client.close(linger=0)
    assert isinstance(answer, wire.Refused)
    assert answer.reason.startswith("unreadable message")
    assert not answer.retry
    assert collector.gate.refused["unreadable message"] == 1
    assert _works(line)


@pytest.mark.parametrize("run", ["../x", "/etc", "..", ".hidden", "a/b", "rank-0000", "attempt-1", "", "a" * 129, "a\n", "x\0y"])
def test_hostile_run_names(collector: Collector, line: Line, tmp_path: Path, run: str) -> None:
    answer, _ = line.ask(wire.Hello(wire.PROTOCOL, wire.Place(run, 0, 0), TOKEN))
    assert isinstance(answer, wire.Refused)
    assert collector.gate.refused["unreadable message"] == 1
    assert _files(tmp_path / "runs") == []


@pytest.mark.parametrize(("attempt", "rank"), [(-1, 0), (0, -1), (0, 10**8), (10**9, 0)])
def test_hostile_numbers(collector: Collector, line: Line, tmp_path: Path, attempt: int, rank: int) -> None:
    answer, _ = line.ask(wire.Hello(wire.PROTOCOL, wire.Place("run", attempt, rank), TOKEN))
    assert isinstance(answer, wire.Refused)
    assert _files(tmp_path / "runs") == []
    assert collector.gate.refused["unreadable message"] == 1


@pytest.mark.parametrize("kind", ["grow", "whole", "table"])
@pytest.mark.parametrize("name", ["../../outside", "/etc/passwd", "log.txt/../x", ".origin", "control.sock", "steps.index", "a.py"])
def test_hostile_file_names(collector: Collector, line: Line, tmp_path: Path, kind: str, name: str) -> None:
    assert _works(line)
    answer, _ = line.ask(wire.Ship(1, [wire.Part(kind, name, 0, 0, 4)]), b"evil")
    assert isinstance(answer, wire.Ack)
    assert answer.ends == {}
    assert collector.gate.refused["not allowed"] == 1
    assert _files(tmp_path / "runs") == ["run", "run/rank-0000"]
    assert (tmp_path / "runs" / "run" / "rank-0000" / ".origin").read_text() == TOKEN


def test_replayed_message(collector: Collector, line: Line, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert _works(line)
    message = wire.Ship(1, [wire.Part("grow", "log.txt", 0, 0, 4)])
    with caplog.at_level(logging.INFO):
        answers = [line.ask(message, b"once")[0] for _ in range(3)]
    assert caplog.text.count("a part that came before was not written again") == 1
    assert all(answer == wire.Ack(1, {"log.txt": 4}) for answer in answers)
    assert (tmp_path / "runs" / "run" / "rank-0000" / "log.txt").read_bytes() == b"once"
    assert collector.counts.repeated == 2


def test_gap_is_not_written(line: Line, tmp_path: Path) -> None:
    assert _works(line)
    answer, _ = line.ask(wire.Ship(1, [wire.Part("grow", "log.txt", 10, 0, 4)]), b"late")
    assert answer == wire.Ack(1, {"log.txt": 0})
    assert not (tmp_path / "runs" / "run" / "rank-0000" / "log.txt").exists()


def test_oversized_messages(collector: Collector, line: Line, keys: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert _works(line)
    answer, _ = line.ask(wire.Ship(1, []), b"x" * (2**20 + 1))
    assert isinstance(answer, wire.Refused)
    assert collector.gate.refused["oversized message"] == 1
    client = _raw(collector, keys)
    with caplog.at_level(logging.INFO):
        client.send_multipart([b"", b"x" * (2**21 + 1)])
        until(lambda: "for a message of more than 2097152 bytes" in caplog.text)
    assert collector.gate.closed == 1
    client.close(linger=0)
    assert collector.counts.messages == 2
    assert _works(line)


def test_payload_of_another_size(collector: Collector, line: Line) -> None:
    assert _works(line)
    answer, _ = line.ask(wire.Ship(1, [wire.Part("grow", "log.txt", 0, 0, 5)]), b"four")
    assert isinstance(answer, wire.Refused)
    assert collector.gate.refused["unreadable message"] == 1


def test_each_key_has_its_use(collector: Collector, line: Line, keys: Path) -> None:
    assert _works(line)
    reader = PatientLine(collector.endpoint, key_files.load_client(keys, "notebook"))
    refused = [
        line.ask(wire.Follow(wire.PROTOCOL, "", {}))[0],
        reader.ask(wire.Hello(wire.PROTOCOL, PLACE, TOKEN))[0],
        reader.ask(wire.Ship(1, []))[0],
    ]
    assert all(isinstance(answer, wire.Refused) for answer in refused)
    assert collector.gate.refused["not allowed with this key"] == 3
    assert isinstance(reader.ask(wire.Follow(wire.PROTOCOL, "run", {}))[0], wire.Following)
    reader.close()


def test_another_protocol(line: Line) -> None:
    answer, _ = line.ask(wire.Hello(wire.PROTOCOL + 1, PLACE, TOKEN))
    assert isinstance(answer, wire.Refused)
    assert "install one version on both sides" in answer.reason


def test_links_in_the_directory_are_not_followed(collector: Collector, line: Line, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "runs" / "run").symlink_to(outside)
    answer, _ = line.ask(wire.Hello(wire.PROTOCOL, PLACE, TOKEN))
    assert isinstance(answer, wire.Refused)
    assert collector.gate.refused["disk"] == 1
    (tmp_path / "runs" / "run").unlink()
    assert _works(line)
    (tmp_path / "runs" / "run" / "rank-0000" / "log.txt").symlink_to(outside / "x")
    answer, _ = line.ask(wire.Ship(1, [wire.Part("grow", "log.txt", 0, 0, 4)]), b"evil")
    assert isinstance(answer, wire.Refused)
    assert list(outside.iterdir()) == []


def test_a_directory_that_is_no_good(tmp_path: Path, keys: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    good = key_files.load_collector(keys)
    with pytest.raises(DtscopeError, match="--dir"):
        Collector("tcp://127.0.0.1:0", tmp_path / "link", good)
    if os.geteuid() == 0:
        os.chown(tmp_path / "real", 65534, 65534)
        with pytest.raises(DtscopeError, match="belongs to another user"):
            Collector("tcp://127.0.0.1:0", tmp_path / "real", good)


@pytest.mark.parametrize("endpoint", ["tcp://127.0.0.1:99999", "tcp://", "ipc://x", "127.0.0.1:4000", ""])
def test_an_endpoint_that_is_no_good(tmp_path: Path, keys: Path, endpoint: str) -> None:
    with pytest.raises(DtscopeError, match="can't listen"):
        Collector(endpoint, tmp_path / "runs", key_files.load_collector(keys))


def test_an_endpoint_that_is_none_is_told_before_keys(tmp_path: Path) -> None:
    with pytest.raises(DtscopeError, match=r"can't listen at 'nonsense': no address; give tcp://HOST:PORT"):
        transport.collect("nonsense", tmp_path / "runs")


def test_keys_that_others_can_read(keys: Path) -> None:
    assert {path.stat().st_mode & 0o777 for path in keys.iterdir()} == {0o600}
    (keys / "rank.json").chmod(0o640)
    with pytest.raises(DtscopeError, match="chmod 600"):
        key_files.load_client(keys)
    with pytest.raises(DtscopeError, match="there already"):
        transport.make_keys(keys)


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"public": "x", "secret": "y", "collector": "z"}'])
def test_keys_that_are_none(keys: Path, content: str) -> None:
    (keys / "rank.json").write_text(content)
    with pytest.raises(DtscopeError, match="dtscope keys DIR"):
        key_files.load_client(keys)


def test_any_file_of_the_folder_names_it(keys: Path) -> None:
    assert key_files.load_client(keys / "rank.json", "notebook").public == key_files.load_client(keys, "notebook").public
    assert key_files.load_collector(keys / "rank.json").public == key_files.load_client(keys).collector
    (keys / "notebook.json").unlink()
    assert key_files.load_client(keys / "rank.json", "notebook").public == key_files.load_client(keys).public


def test_secrets_are_not_shown(keys: Path) -> None:
    for value in (key_files.load_collector(keys), key_files.load_client(keys)):
        assert value.secret not in repr(value)


def _raw(collector: Collector, keys: Path) -> zmq.Socket[bytes]:
    mine = key_files.load_client(keys)
    client: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
    client.setsockopt(zmq.RCVTIMEO, 60_000)
    client.curve_publickey, client.curve_secretkey = mine.public.encode(), mine.secret.encode()
    client.curve_serverkey = mine.collector.encode()
    client.connect(collector.endpoint)
    return client
