# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""A slow pair of ranks, from ordinary traffic: sends and receives tell which two ranks a message went between.

The n-th send from a to b is the n-th receive at b from a; it moves from the later of both starts to the earlier of both ends, so that
no waiting is in it. A pair is compared with the other pairs by its median time a byte. Collectives of more than two ranks tell
no pair: a ring is as slow as its slowest link for everybody; groups of two are compared as groups (`slow_link`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dtscope_jupyter.analysis import columns
from dtscope_jupyter.analysis.columns import NONE
from dtscope_jupyter.diagnosis.steps import position

if TYPE_CHECKING:
    import pyarrow as pa

    from dtscope_jupyter.analysis.columns import Ints, Reals
    from dtscope_jupyter.diagnosis.evidence import Evidence

_SENDS, _RECEIVES = ("send", "isend"), ("recv", "irecv", "receive")
_FEWEST_PAIRS, _FEWEST, _RATIO = 3, 4, 1.5
_LARGE_BYTES = 64 * 2**10
"""Below that the start-up decides, and the rate tells nothing of the link."""


@dataclass(frozen=True)
class SlowPair:
    """Two ranks, how many times as long their messages take a byte, and what that costs in each step (S,), ms."""

    ranks: tuple[int, int]
    ratio: float
    gb_s: float
    usual_gb_s: float
    pairs: int
    lost: Reals


@dataclass(frozen=True)
class _Messages:
    """Of each message: the two ranks, lower first; step place; ms; bytes."""

    low: Ints
    high: Ints
    step: Ints
    ms: Reals
    bytes: Reals


def find(evidence: Evidence) -> SlowPair | None:
    """The slowest pair, if it is clearly slower than the others; None with fewer than three pairs."""
    messages = _messages(evidence)
    key, of_message = np.unique(np.stack((messages.low, messages.high)), axis=1, return_inverse=True)
    of_message = of_message.ravel()
    rates = np.array([_rate(messages, of_message == number) for number in range(key.shape[1])])
    if np.isfinite(rates).sum() < _FEWEST_PAIRS:
        return None
    slowest = int(np.nanargmax(rates))
    rest = np.delete(rates, slowest)
    usual = float(np.nanmedian(rest))
    if not rates[slowest] > _RATIO * max(usual, float(np.nanquantile(rest, 0.75))):
        return None
    mine = of_message == slowest
    extra = np.where(mine & (messages.step >= 0), np.maximum(messages.ms - usual * messages.bytes, 0), 0.0)
    lost = evidence.step_sum(extra, messages.step)
    pair = int(evidence.ranks[key[0, slowest]]), int(evidence.ranks[key[1, slowest]])
    return SlowPair(pair, float(rates[slowest] / usual), 1e-6 / float(rates[slowest]), 1e-6 / usual, int(np.isfinite(rates).sum()), lost)


def _rate(messages: _Messages, mine: np.ndarray) -> float:
    return float(np.median(messages.ms[mine] / messages.bytes[mine])) if mine.sum() >= _FEWEST else float("nan")


def _messages(evidence: Evidence) -> _Messages:
    table = evidence.tables["collectives"]
    sent, received = (_ordered(evidence, table, names) for names in (_SENDS, _RECEIVES))
    start, end = columns.ints(table, "start_ns"), columns.ints(table, "end_ns")
    rank, size = position(evidence.ranks, columns.ints(table, "rank")), columns.reals(table, "bytes")
    both = sorted(set(sent) & set(received))
    pairs = [(sent[one], received[one]) for one in both if len(sent[one]) == len(received[one])]
    send = np.concatenate([one for one, _ in pairs]) if pairs else np.zeros(0, np.int64)
    receive = np.concatenate([one for _, one in pairs]) if pairs else np.zeros(0, np.int64)
    shift = evidence.shift
    begin = np.maximum(start[send] + shift[rank[send]], start[receive] + shift[rank[receive]])
    done = np.minimum(end[send] + shift[rank[send]], end[receive] + shift[rank[receive]])
    ms, known = (done - begin) / 1e6, size[send] >= _LARGE_BYTES
    known &= ms > 0
    send, receive, ms = send[known], receive[known], ms[known]
    low, high = np.minimum(rank[send], rank[receive]), np.maximum(rank[send], rank[receive])
    return _Messages(low, high, evidence.steps.index(columns.ints(table, "step")[send]), ms, size[send])


def _ordered(evidence: Evidence, table: pa.Table, names: tuple[str, ...]) -> dict[tuple[int, int, int], Ints]:
    """Rows of sends or of receives by (group, sender, receiver), in the order of their calls."""
    rank, peer = position(evidence.ranks, columns.ints(table, "rank")), position(evidence.ranks, columns.ints(table, "peer"))
    start, end = columns.ints(table, "start_ns"), columns.ints(table, "end_ns")
    group = columns.codes(table, "process_group")[0]
    rows = np.flatnonzero(columns.is_any(table, "operation", names) & (rank >= 0) & (peer >= 0) & (start != NONE) & (end != NONE))
    rows = rows[np.argsort(start[rows], kind="stable")]
    sender, receiver = (rank, peer) if names is _SENDS else (peer, rank)
    found: dict[tuple[int, int, int], list[int]] = {}
    for row in rows.tolist():
        found.setdefault((int(group[row]), int(sender[row]), int(receiver[row])), []).append(row)
    return {key: np.array(value, np.int64) for key, value in found.items()}
