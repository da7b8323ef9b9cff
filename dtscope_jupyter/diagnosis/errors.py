# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Collectives that raise errors while the run goes on: more than one in a thousand within a window of steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dtscope_jupyter.analysis import columns
from dtscope_jupyter.analysis.columns import NONE
from dtscope_jupyter.diagnosis.finding import Finding, Severity, name_ranks

if TYPE_CHECKING:
    from dtscope_jupyter.diagnosis.evidence import Evidence

NOTE = "collective_failed"
"""Name of the note that a rank writes of each."""
_RATE, _WINDOW = 0.001, 100
ADVICE = "Look at the ranks' logs and at the network between them: errors that a program survives now end a longer run."


def find(evidence: Evidence) -> Finding | None:
    """One finding over all ranks; errors of a run's last step are how it ended, and no rate."""
    notes, calls = evidence.tables["notes"], evidence.tables["collectives"]
    code, names = columns.codes(notes, "name")
    step = columns.ints(notes, "step")
    failed = (code == names.index(NOTE)) & (step != NONE) if NOTE in names else np.zeros(len(notes), dtype=bool)
    called = columns.ints(calls, "step")
    called = called[called != NONE]
    if not failed.any() or not len(called):
        return None
    failed &= step < called.max()
    window = step[failed] // _WINDOW
    if not len(window):
        return None
    errors, total = np.bincount(window), np.bincount(called // _WINDOW, minlength=int(window.max()) + 1)
    rates = errors / np.maximum(total[: len(errors)] + errors, 1)
    worst = int(np.argmax(rates))
    if rates[worst] <= _RATE:
        return None
    inside = failed & (step // _WINDOW == worst)
    ranks = tuple(sorted(set(columns.ints(notes, "rank")[inside].tolist())))
    steps = tuple(sorted(set(step[inside].tolist())))
    words = next((str(notes["text"][row]) for row in np.flatnonzero(inside).tolist()), "")
    told = {"errors": int(errors[worst]), "rate": float(rates[worst]), "window_steps": _WINDOW, "first_error": words}
    return Finding(
        kind="hang",
        cause="unknown",
        ranks=ranks,
        severity=Severity.CRITICAL,
        confidence=0.9,
        cost_ms=0.0,
        steps=steps,
        evidence=told,
        advice=ADVICE,
        sentence=f"{name_ranks(ranks, len(evidence.expected_ranks))}: {int(errors[worst])} collectives raised errors between steps "
        f"{steps[0]} and {steps[-1]}, {100 * float(rates[worst]):.2g} % of them, and the run went on: {words}.",
    )
