# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Many or large files on all cores: helper processes read a share each and hand tables back in shared memory.

Decoding JSON holds the interpreter's lock, so threads don't help. A helper is a fresh interpreter (a notebook kernel
must not fork) that gets its share on stdin and leaves when stdin closes, so that it never outlives us. Its tables
lie as Arrow IPC streams in an unnamed file, mapped here without a copy.
"""

from __future__ import annotations

import json
import mmap
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa

from dtscope_jupyter.ingest import flight_recorder, kineto, samples
from dtscope_jupyter.ingest.files import Kind, Source, Unreadable
from dtscope_jupyter.ingest.part import Part

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

READERS = {Kind.KINETO: kineto.read, Kind.FLIGHT_RECORDER: flight_recorder.read, Kind.SAMPLES: samples.read}
WORTH_BYTES = 300 * 2**20
"""JSON bytes from which helpers pay: about a second of work for one core."""
_START = "from dtscope_jupyter.ingest.parallel import main; main()"


def read_all(sources: Sequence[Source], rank: int | None) -> Iterator[tuple[Source, Part | Unreadable]]:
    """What each trace and dump gave, or why it gave nothing; in any order."""
    shares = _shares(sources)
    helpers = [helper for share in shares[1:] if (helper := _Helper.started(share, rank)) is not None]
    helped = {source.path for helper in helpers for source in helper.share}
    try:
        for source in sources:
            if source.path not in helped:
                yield source, read(source, rank)
        for helper in helpers:
            yield from helper.results()
    finally:
        for helper in helpers:
            helper.stop()


def read(source: Source, rank: int | None) -> Part | Unreadable:
    """What one trace or dump gave, or why it gave nothing."""
    try:
        return READERS[source.kind](source.path, rank)
    except Unreadable as error:
        return error
    except OSError as error:
        return Unreadable(error.strerror or str(error))


def _shares(sources: Sequence[Source]) -> list[list[Source]]:
    """The sources by process, the first share ours; largest first to whom has least."""
    workers = min(len(os.sched_getaffinity(0)), len(sources)) if sum(source.work for source in sources) >= WORTH_BYTES else 1
    shares: list[list[Source]] = [[] for _ in range(max(workers, 1))]
    for source in sorted(sources, key=lambda source: -source.work):
        min(shares, key=lambda share: sum(each.work for each in share)).append(source)
    return shares


class _Helper:
    """One helper process and its share."""

    def __init__(self, share: list[Source], process: subprocess.Popen[bytes], file: IO[bytes]) -> None:
        self.share = share
        self._process = process
        self._file = file

    @classmethod
    def started(cls, share: list[Source], rank: int | None) -> _Helper | None:
        """A running helper; None where no process can be started, so that the share falls to us."""
        file = tempfile.TemporaryFile() if not hasattr(os, "memfd_create") else os.fdopen(os.memfd_create("dtscope"), "w+b")  # noqa: SIM115
        package = str(Path(__file__).parents[2])
        paths = os.pathsep.join((package, os.environ["PYTHONPATH"])) if "PYTHONPATH" in os.environ else package
        try:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", _START],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                pass_fds=[file.fileno()],
                env={**os.environ, "PYTHONPATH": paths},
            )
        except OSError:
            file.close()
            return None
        wanted = {"descriptor": file.fileno(), "rank": rank, "share": [[str(s.path), s.kind, s.bytes, s.work] for s in share]}
        assert process.stdin is not None, "asked for a pipe"
        process.stdin.write(json.dumps(wanted).encode() + b"\n")
        process.stdin.flush()
        return cls(share, process, file)

    def results(self) -> Iterator[tuple[Source, Part | Unreadable]]:
        """What the helper read; where it died, a reason for each of its files."""
        assert self._process.stdout is not None, "asked for a pipe"
        answer = self._process.stdout.read()
        try:
            told = json.loads(answer)
        except ValueError:
            status = self._process.wait()
            for source in self.share:
                yield source, Unreadable(f"the process that read it ended with status {status}")
            return
        data = pa.py_buffer(mmap.mmap(self._file.fileno(), 0, prot=mmap.PROT_READ)) if any("tables" in each for each in told) else None
        for source, each in zip(self.share, told, strict=True):
            yield source, _unpacked(source.path, each, data)

    def stop(self) -> None:
        """Ends the process and closes its files."""
        self._process.kill()
        self._process.wait()
        for file in (self._process.stdin, self._process.stdout, self._file):
            if file is not None:
                file.close()


def _unpacked(path: Path, told: dict[str, Any], data: pa.Buffer | None) -> Part | Unreadable:
    if "reason" in told:
        return Unreadable(told["reason"])
    assert data is not None, "a helper that read something wrote it"
    tables = {name: pa.ipc.open_stream(data.slice(*place)).read_all() for name, place in told.pop("tables").items()}
    return Part(path=path, tables=tables, **told)


def main() -> None:
    """The helper's side."""
    wanted = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    with os.fdopen(wanted["descriptor"], "wb") as out:
        share = (Source(Path(path), Kind(kind), size, work) for path, kind, size, work in wanted["share"])
        told = [_packed(read(source, wanted["rank"]), out) for source in share]
    json.dump(told, sys.stdout)


def _packed(result: Part | Unreadable, out: IO[bytes]) -> dict[str, Any]:
    if isinstance(result, Unreadable):
        return {"reason": str(result)}
    places = {}
    for name, table in result.tables.items():
        begin = out.tell()
        with pa.ipc.new_stream(out, table.schema) as writer:
            writer.write_table(table)
        places[name] = (begin, out.tell() - begin)
    fields = ("rank", "rank_given", "world_size", "first_ns", "last_ns", "notes")
    return {"tables": places, **{name: getattr(result, name) for name in fields}}


def _leave_with_parent() -> None:
    while os.read(0, 1):
        pass
    os._exit(1)
