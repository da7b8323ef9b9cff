# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""How a run ended that went wrong, as a sentence: from what its launcher wrote into run.json, else from its ranks' own words."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from dtscope_jupyter.errors import PEER_LOST

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dtscope_jupyter.diagnosis.finding import Finding

_FAILED = re.compile(r"rank (\d+): (.*)", re.DOTALL)
_TIMEOUT = re.compile(r"was not done after --timeout ([^,]*)(.*)")
_NO_EXCEPTION = re.compile(r"(ended|left) (by|with) |could not be observed: ")


def sentence(meta: Mapping[str, Any], findings: Iterable[Finding] = ()) -> str:
    """Rank 1 raised ValueError: bad batch. | Timed out after 5 s ... | Interrupted ...; "" of a run that goes on or is done.

    Of a run without a launcher of ours, and of one that failed as a rank lost its peer, what `findings` say of the end.
    """
    state, message = str(meta.get("state", "")), str(meta.get("message", ""))
    if not state or (state == "failed" and any(mark in message for mark in PEER_LOST)):
        told = next((each.sentence for each in findings if each.evidence.get("ends")), "")
        if told or not state:
            return told
    if state == "interrupted":
        return "Interrupted by the user."
    if state != "failed":
        return ""
    match = _FAILED.fullmatch(message)
    return _of_rank(match[1], _line(match[2])) if match else f"The run failed: {_line(message)}." if message else "The run failed."


def _of_rank(rank: str, reason: str) -> str:
    if late := _TIMEOUT.fullmatch(reason):
        return f"Timed out after {late[1]}: rank {rank} was not done{late[2]}."
    if reason.startswith("hang: "):
        return f"Stopped at a hang. {reason.removeprefix('hang: ')}"
    return f"Rank {rank} {'' if _NO_EXCEPTION.match(reason) else 'raised '}{reason}{'' if reason.endswith(('.', '!', '?')) else '.'}"


def _line(text: str) -> str:
    """The first line, cut to 300 characters."""
    return next(iter(text.strip().splitlines()), "")[:300]
