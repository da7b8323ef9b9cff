# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Questions to live ranks, all at once, and captures taken by them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from dtscope_jupyter import places
from dtscope_jupyter.agent import control
from dtscope_jupyter.errors import DtscopeError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from dtscope_jupyter.rundir import Attempt

_AT_ONCE = 64
routes: dict[Path, Callable[[int, dict[str, Any]], dict[str, Any]]] = {}
"""Attempts some of whose ranks can't be reached from here directly: how to ask one."""


def ask_ranks(attempt: Attempt, request: dict[str, Any], ranks: Sequence[int] | None = None) -> dict[int, dict[str, Any]]:
    """The reply of each rank that listens (default: all that do); one that can't answer says why in "error"."""
    chosen = [rank for rank in (attempt.ranks() if ranks is None else ranks) if (attempt.rank_path(rank) / control.SOCKET).exists()]
    if not chosen:
        return {}
    with ThreadPoolExecutor(min(_AT_ONCE, len(chosen)), thread_name_prefix="dtscope-ask") as pool:
        return dict(zip(chosen, pool.map(lambda rank: _ask(attempt, rank, request), chosen), strict=True))


def capture(attempt: Attempt, what: str, ranks: list[int] | None, steps: int | None) -> list[str]:
    """Has ranks take a profile, stacks or Flight Recorder dumps now; one line each. DtscopeError where none could."""
    missing = sorted(set(ranks or []) - set(attempt.ranks()))
    if missing:
        raise DtscopeError(f"--ranks {missing[0]}: this run has no such rank; it has {len(attempt.ranks())}")
    request = {"command": what} | ({"steps": steps} if what == "profile" and steps is not None else {})
    replies = ask_ranks(attempt, request, ranks)
    if not any(reply["ok"] for reply in replies.values()):
        reason = next((reply["error"] for reply in replies.values()), "no rank listens: the run has ended or is on another host")
        raise DtscopeError(f"no {what} could be taken of {places.shown(attempt.path)}: {reason}")
    return [f"rank {rank}: {_told(attempt, rank, what, reply)}" for rank, reply in replies.items()]


def _ask(attempt: Attempt, rank: int, request: dict[str, Any]) -> dict[str, Any]:
    route = routes.get(attempt.path)
    if route is not None:
        return route(rank, request)
    try:
        return control.ask(attempt.rank_path(rank), request)
    except DtscopeError as error:
        return {"ok": False, "error": str(error)}


def _told(attempt: Attempt, rank: int, what: str, reply: dict[str, Any]) -> str:
    if not reply["ok"]:
        return str(reply["error"])
    if what == "profile":
        return f"profiles its next {reply['steps']} steps"
    files = reply.get("files") or [reply["file"]]
    return ", ".join(places.shown(attempt.rank_path(rank) / file) for file in files)
