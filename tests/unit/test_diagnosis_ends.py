# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The first failure is the cause, who lost a peer is a victim; nothing is said of ranks that live, or that ended well."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from analysis_rows import at, step, tables

from dtscope_jupyter import ending
from dtscope_jupyter.diagnosis import diagnose

if TYPE_CHECKING:
    import pyarrow as pa

    from dtscope_jupyter.diagnosis import Diagnosis

LOST = "raised RuntimeError: [pair.cc:553] Connection closed by peer [127.0.0.1]:9 (train.py:20)"
RAISED = "raised ValueError: bad batch (train.py:13)"


def end(rank: int, ms: float, name: str | None, code: float | None, text: str = "", at_step: int | None = None) -> dict[str, Any]:
    return {"rank": rank, "kind": "exit", "time_ns": at(ms), "name": name, "value": code, "text": text, "step": at_step}


def run(done: dict[int, int], *notes: dict[str, Any], torn: tuple[int, ...] = ()) -> dict[str, pa.Table]:
    """Ranks that finished so many steps of 10 ms; those of `torn` were in the backward of one more."""
    rows = [step(rank, n, 10 * n, 10 * n + 9, optimizer_end_ns=at(10 * n + 8)) for rank, count in done.items() for n in range(count)]
    rows += [step(rank, done[rank], 10 * done[rank], 10 * done[rank] + 9, backward_start_ns=at(10 * done[rank] + 2)) for rank in torn]
    members = [{"rank": rank, "process_group": "0", "backend": "gloo", "ranks": list(done)} for rank in done]
    return tables(steps=rows, groups=members, notes=list(notes))


def found(result: Diagnosis) -> list[tuple[str, tuple[int, ...]]]:
    return [(each.cause, each.ranks) for each in result.findings if each.kind == "hang"]


def test_who_raised_first_is_the_cause_and_who_lost_it_the_victim() -> None:
    notes = (
        end(0, 140, "RuntimeError", 1.0, LOST, 5),
        end(1, 150, "ValueError", 1.0, RAISED, 5),
        end(2, 160, "KeyError", 1.0, "raised KeyError: 'a'"),
    )
    result = diagnose(run({0: 5, 1: 5, 2: 5}, *notes))
    assert found(result) == [("process_died", (1,))]
    assert result.findings[0].sentence == (
        "Rank 1 raised ValueError: bad batch (train.py:13) in step 5; rank 2 raised KeyError: 'a' 10 ms later; "
        "rank 0 lost the connection to it, which is a consequence."
    )
    assert ending.sentence({}, result.findings) == result.findings[0].sentence
    assert str(result).count("bad batch") == 1


def test_ranks_that_raise_the_same_are_named_together() -> None:
    assert found(diagnose(run({0: 5, 1: 5}, end(0, 50, "E", 1.0, RAISED), end(1, 51, "E", 1.0, RAISED)))) == [("process_died", (0, 1))]


def test_a_run_of_which_the_launcher_tells_the_cause_is_told_once() -> None:
    exits = (
        end(1, 50, None, 1.0, "ended with exit code 1: ValueError: bad batch"),
        end(0, 60, None, 1.0, f"ended with exit code 1: {LOST}"),
    )
    assert found(diagnose(run({0: 5, 1: 5}, *exits))) == []
    assert ending.sentence({"state": "failed", "message": "rank 1: ValueError: bad"}, ()) == "Rank 1 raised ValueError: bad."


@pytest.mark.parametrize("launched", [True, False])
def test_a_rank_that_ends_after_fewer_steps_is_the_cause(launched: bool) -> None:  # noqa: FBT001
    """The launcher of a notebook's ranks tells no steps: their rows do."""
    good = end(1, 60, None, 0.0, "ended with exit code 0") if launched else end(1, 60, "end", 0.0, "ended by itself", 5)
    lost = end(0, 62, None if launched else "RuntimeError", 1.0, LOST, None if launched else 5)
    result = diagnose(run({0: 5, 1: 5}, good, lost, torn=(0,)))
    assert found(result) == [("never_called", (1,))]
    assert "Rank 1 ended, without an error, after 5 steps, while rank 0 was in step 5, counted from 0" in result.findings[0].sentence
    assert "drop_last" in result.findings[0].advice
    meta = {"state": "failed", "message": f"rank 0: {LOST}"} if launched else {}
    assert ending.sentence(meta, result.findings) == result.findings[0].sentence


def test_a_collective_behind_the_loop_is_told_from_a_longer_loop() -> None:
    result = diagnose(run({0: 5, 1: 5}, end(1, 60, "end", 0.0, at_step=5), end(0, 62, "RuntimeError", 1.0, LOST, 5)))
    assert "while rank 0 still called a collective" in result.findings[0].sentence


def test_a_rank_that_ends_well_long_after_its_peer_was_lost_is_no_cause() -> None:
    assert found(diagnose(run({0: 5, 1: 5}, end(0, 62, "RuntimeError", 1.0, LOST, 5), end(1, 5000, "end", 0.0, at_step=5)))) == []


def test_a_rank_without_a_word_is_named_where_its_peers_lost_it() -> None:
    """The launcher ended rank 2 later, which had come further."""
    lost, gone = end(0, 70, "RuntimeError", 1.0, LOST, 6), (end(1, 55, "vanished", None), end(2, 75, "vanished", None))
    sure = diagnose(run({0: 6, 1: 4, 2: 6}, lost, *gone))
    unsure = diagnose(run({0: 6, 1: 4, 2: 6}, lost))
    assert found(sure) == found(unsure) == [("process_died", (1,))]
    assert sure.findings[0].confidence > unsure.findings[0].confidence
    assert "ended without a word (step 3 is its last on record)" in sure.findings[0].sentence
    assert "left no word" in unsure.findings[0].sentence


def test_live_only_what_is_gone_for_sure_is_named() -> None:
    """Rank 1 may be on another host, its rows on their way."""
    lost = end(0, 70, "RuntimeError", 1.0, LOST, 6)
    assert found(diagnose(run({0: 6, 1: 4}, lost), live=True)) == []
    assert found(diagnose(run({0: 6, 1: 4}, lost, end(1, 55, "vanished", None)), live=True)) == [("process_died", (1,))]


def test_a_rank_that_goes_on_and_one_that_may_still_tell_are_not_named() -> None:
    found_so = run({0: 6, 1: 4}, end(0, 70, "RuntimeError", 1.0, LOST, 6))
    sample = tables(devices=[{"rank": 1, "time_ns": at(9000), "device": "cpu"}])["devices"]
    assert found(diagnose(found_so | {"devices": sample})) == []
    now = {**end(0, 70, "RuntimeError", 1.0, LOST, 6), "time_ns": time.time_ns()}
    assert found(diagnose(run({0: 6, 1: 4}, now))) == []


@pytest.mark.parametrize("notes", [
    [],
    [end(0, 60, "end", 0.0, at_step=5), end(1, 61, "end", 0.0, at_step=5)],
    [end(0, 60, "end", 0.0, at_step=5)],
    [end(0, 60, "end", 0.0, at_step=5), end(1, 61, "finish", None)],
    [end(0, 60, "vanished", None), end(1, 61, "vanished", None)],
    [end(0, 60, "KeyboardInterrupt", None, "was interrupted"), end(1, 61, "vanished", None)],
    [end(0, 60, "end", 0.0, at_step=5), end(1, 61, "vanished", None)],
    [end(0, 60, "KeyboardInterrupt", None, "was interrupted"), end(1, 61, "RuntimeError", 1.0, LOST)],
])  # fmt: skip
def test_nothing_is_said_where_nobody_failed(notes: list[dict[str, Any]]) -> None:
    for live in (False, True):
        result = diagnose(run({0: 5, 1: 5}, *notes), live=live)
        assert (found(result), ending.sentence({}, result.findings)) == ([], "")


def test_a_rank_that_is_gone_while_another_finishes_its_steps_is_named() -> None:
    assert found(diagnose(run({0: 9, 1: 4}, end(0, 95, "end", 0.0, at_step=9), end(1, 45, "vanished", None)))) == [("process_died", (1,))]
