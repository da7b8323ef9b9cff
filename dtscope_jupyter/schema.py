# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The tables, stated once. Recorder, ingest, analysis, SQL, browser and docs derive from here.

Every time is int64 nanoseconds of Unix time as the rank's own host tells it. A duration column ends in
`_ms`. A column that is unknown for a row is null, never 0 or NaN.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from dtscope_jupyter import arrays

VERSION = 1
"""Version of the format; a file of a newer version is skipped and counted."""


@dataclass(frozen=True)
class Column:
    """One column: its Arrow type, unit and meaning, kept in the field's metadata."""

    name: str
    type: pa.DataType
    meaning: str
    unit: str = ""
    required: bool = False

    @property
    def field(self) -> pa.Field:
        """The Arrow field, with unit and meaning as metadata."""
        return pa.field(
            self.name,
            self.type,
            nullable=not self.required,
            metadata={"unit": self.unit, "meaning": self.meaning},
        )


@dataclass(frozen=True)
class Table:
    """One table: what a row is, and its columns in the order of the file."""

    name: str
    row: str
    columns: tuple[Column, ...]

    @cached_property
    def arrow(self) -> pa.Schema:
        """The Arrow schema; its metadata names the table and the format's version."""
        metadata = {"dtscope.table": self.name, "dtscope.version": str(VERSION), "row": self.row}
        return pa.schema([column.field for column in self.columns], metadata=metadata)

    def empty(self) -> pa.Table:
        """A table of this schema with no row."""
        return self._empty

    @cached_property
    def _empty(self) -> pa.Table:
        return pa.table([arrays.column([], field.type) for field in self.arrow], schema=self.arrow)  # `empty_table` imports pandas


def _integer(name: str, meaning: str, unit: str = "", *, required: bool = False) -> Column:
    return Column(name, pa.int64(), meaning, unit, required)


def _small(name: str, meaning: str, *, required: bool = False) -> Column:
    return Column(name, pa.int32(), meaning, required=required)


def _text(name: str, meaning: str, *, required: bool = False) -> Column:
    return Column(name, pa.utf8(), meaning, required=required)


def _real(name: str, meaning: str, unit: str = "") -> Column:
    return Column(name, pa.float64(), meaning, unit)


def _flag(name: str, meaning: str) -> Column:
    return Column(name, pa.bool_(), meaning)


_RANK = _small("rank", "global rank that the row is of", required=True)
_STEP = _integer("step", "training step, counted from 0 on each rank; null outside of steps")
_START = _integer("start_ns", "start", "ns")
_END = _integer("end_ns", "end", "ns")
_SOURCE = _text("source", "profiler, event, host or flight_recorder: how the times were seen")
_LINE = _text("line", "file:line of the user's code, where known")

STEPS = Table(
    "steps",
    "one training step of one rank",
    (
        _RANK,
        _integer("step", "training step, counted from 0 on each rank", required=True),
        _START,
        _END,
        _integer("backward_start_ns", "first gradient begins", "ns"),
        _integer("backward_end_ns", "backward returns, synchronised gradients included", "ns"),
        _integer("optimizer_start_ns", "outermost optimizer step begins", "ns"),
        _integer("optimizer_end_ns", "outermost optimizer step ends", "ns"),
        _real("compute_ms", "device: any kernel that is no communication; CPU: training thread not blocked in a collective", "ms"),
        _real("comm_ms", "at least one collective in flight or communication kernel running", "ms"),
        _real("overlap_ms", "comm and compute at once", "ms"),
        _real("exposed_ms", "comm without compute", "ms"),
        _real("input_ms", "training thread waiting for the data loader", "ms"),
        _real("synced_norm", "L2 norm over all synchronised gradients; equal on all ranks of a DDP group"),
        _integer("nonfinite", "NaN and infinite values in the rank's gradients, where counted"),
        _integer("micro_batches", "backward passes in the step"),
        _flag("optimizer_skipped", "no optimizer step happened although gradients were made"),
        _integer("host_memory_bytes", "resident memory of the rank", "bytes"),
        _integer("device_allocated_bytes", "device memory held by tensors", "bytes"),
        _integer("device_reserved_bytes", "device memory held by the allocator", "bytes"),
        _flag("disturbed", "a profiler window or another probe of ours slowed this step"),
        _SOURCE,
        _real("thread_cpu_ms", "CPU time that the training thread used; far below the step where it slept", "ms"),
        _real("thread_delay_ms", "time that the training thread was ready to run while something else had the CPU", "ms"),
    ),
)

COLLECTIVES = Table(
    "collectives",
    "one collective, send or receive of one rank",
    (
        _RANK,
        _STEP,
        _integer("seq", "position within the process group, from 0 or as the runtime counts"),
        _text("process_group", "name of the process group", required=True),
        _small("group_size", "ranks in the process group"),
        _text("operation", "all_reduce, all_gather, reduce_scatter, broadcast, send, ...", required=True),
        _integer("bytes", "size as in nccl-tests: whole buffer of all_reduce, gathered or unscattered total of the others", "bytes"),
        _text("dtype", "element type, as torch names it without the torch. prefix"),
        _text("shape", "shape of the input, e.g. [1024, 4]"),
        _small("bucket", "DDP bucket index; null where it is none"),
        _text("phase", "forward, backward, optimizer or null"),
        _integer("enqueue_ns", "the host calls", "ns"),
        _START,
        _END,
        _text("state", "scheduled, started or completed"),
        _flag("asynchronous", "the caller did not wait in the call"),
        _flag("contiguous", "the input was contiguous, so that no copy was needed"),
        _small("peer", "other rank of a send or receive"),
        _integer("stream", "device stream"),
        _LINE,
        _SOURCE,
        _real("duration_ms", "time on the device where only that is known, as in Flight Recorder dumps; start_ns, end_ns are null", "ms"),
    ),
)

GRADIENTS = Table(
    "gradients",
    "one parameter's gradient in one step of one rank",
    (
        _RANK,
        _integer("step", "training step", required=True),
        _small("parameter_id", "row of `parameters`", required=True),
        _integer("ready_ns", "the local gradient is complete", "ns"),
        _real("local_norm", "L2 norm before averaging over ranks"),
        _real("synced_norm", "L2 norm after averaging over ranks"),
        _integer("nonfinite", "NaN and infinite values in the local gradient"),
    ),
)

PARAMETERS = Table(
    "parameters",
    "one parameter of the model on one rank",
    (
        _RANK,
        _small("parameter_id", "position among the model's parameters", required=True),
        _text("parameter", "name as in named_parameters", required=True),
        _text("module", "class of the module that owns it"),
        _text("shape", "shape, e.g. [1024, 4]"),
        _integer("elements", "number of elements held by this rank"),
        _text("dtype", "element type"),
        _small("bucket", "DDP bucket index, after the rebuild"),
    ),
)

GRADIENT_TILES = Table(
    "gradient_tiles",
    "one parameter's gradient as a picture, in one step of one rank",
    (
        _RANK,
        _integer("step", "training step", required=True),
        _small("parameter_id", "row of `parameters`", required=True),
        _small("height", "rows of the picture, at most 64", required=True),
        _small("width", "columns of the picture, at most 64", required=True),
        Column("values", pa.list_(pa.float32()), "largest magnitude of each cell, row by row"),
        Column("histogram", pa.list_(pa.int64()), "count by floor(log10(magnitude)), -12 to 3; first zero or below, last above or NaN"),
    ),
)

HOST = Table(
    "host",
    "one interval in which the rank's host did something other than launch work",
    (
        _RANK,
        _STEP,
        _text("kind", "input, gc, host_sync, copy, collective_wait, checkpoint or stack", required=True),
        _START,
        _END,
        _integer("bytes", "bytes copied", "bytes"),
        _text("detail", "what exactly, e.g. generation 2 or aten::item"),
        _LINE,
    ),
)

SPANS = Table(
    "spans",
    "one interval seen by a profiler",
    (
        _RANK,
        _STEP,
        _text("kind", "compute, comm, memcpy, memset, cpu_op, launch, annotation, sync or python", required=True),
        _text("name", "kernel, operator or annotation", required=True),
        _START,
        _END,
        _integer("stream", "device stream; null on the host"),
        _integer("thread", "host thread; null on the device"),
        _integer("correlation", "joins a launch with what it launched"),
        _integer("launch_ns", "the host launched it", "ns"),
        _integer("bytes", "bytes moved", "bytes"),
        _text("copy", "e.g. HtoD, DtoH, with pageable or pinned where known"),
        _text("process_group", "name of the process group of a comm kernel"),
        _text("operation", "operation of a comm kernel"),
        _text("phase", "forward, backward, optimizer or null"),
        _LINE,
    ),
)

DEVICES = Table(
    "devices",
    "one sample of a device",
    (
        _RANK,
        _integer("time_ns", "when", "ns", required=True),
        _text("device", "e.g. cuda:0 or cpu", required=True),
        _text("name", "model name"),
        _real("utilization", "share of time busy", "%"),
        _real("memory_utilization", "share of time the memory was busy", "%"),
        _integer("memory_bytes", "memory in use", "bytes"),
        _real("clock_mhz", "clock of the compute units", "MHz"),
        _real("power_w", "power drawn", "W"),
        _real("temperature_c", "temperature", "degC"),
        _text("throttle", "reasons for a lowered clock, comma separated; empty when none"),
        _real("pcie_rx_bytes_s", "read over PCIe", "bytes/s"),
        _real("pcie_tx_bytes_s", "written over PCIe", "bytes/s"),
        _real("link_rx_bytes_s", "read over NVLink, or the network on a CPU host", "bytes/s"),
        _real("link_tx_bytes_s", "written over NVLink, or the network on a CPU host", "bytes/s"),
        _integer("errors", "uncorrected ECC errors and Xids so far"),
    ),
)

CLOCKS = Table(
    "clocks",
    "one comparison of a rank's clock",
    (
        _RANK,
        _text("host", "host name", required=True),
        _text("boot_id", "tells hosts of one name apart; ranks that share it share a monotonic clock"),
        _integer("time_ns", "when, by the rank's own clock", "ns"),
        _integer("monotonic_offset_ns", "added to the monotonic clock to give the times of this rank", "ns"),
        _integer("offset_ns", "to be added to this rank's times to be on the reference clock", "ns"),
        _integer("uncertainty_ns", "half width of the offset's interval", "ns"),
        _text("method", "same_host, round_trip or collective_ends"),
    ),
)

GROUPS = Table(
    "groups",
    "one process group as one rank sees it",
    (
        _RANK,
        _text("process_group", "name of the process group", required=True),
        _text("description", "what it is for, e.g. default_pg or mesh_dp"),
        _text("backend", "gloo, nccl, ..."),
        Column("ranks", pa.list_(pa.int32()), "global ranks of its members"),
        _integer("last_enqueued", "Flight Recorder: sequence number of the last collective that the rank's host enqueued"),
        _integer("last_started", "Flight Recorder: of the last one that started, where timing was on"),
        _integer("last_completed", "Flight Recorder: of the last one that completed"),
    ),
)

NOTES = Table(
    "notes",
    "one remark: a user's scalar, a loss of rows, a collector that gave up",
    (
        _RANK,
        _STEP,
        _integer("time_ns", "when", "ns"),
        _text("kind", "scalar, observer, dropped, thinned, collector, unreadable, damaged, fault, window, exit or warning", required=True),
        _text("name", "of the scalar, the collector or the file"),
        _real("value", "the scalar, the count or the ratio"),
        _text("text", "one line for a person"),
    ),
)

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        STEPS, COLLECTIVES, GRADIENTS, PARAMETERS, GRADIENT_TILES, HOST, SPANS, DEVICES, CLOCKS, GROUPS, NOTES,
    )
}


def empty_tables() -> dict[str, pa.Table]:
    """Every table, without a row."""
    return {name: table.empty() for name, table in TABLES.items()}
