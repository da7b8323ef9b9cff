# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Where a finding lies and what it costs, in a few words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dtscope_jupyter.view.text import count, duration

if TYPE_CHECKING:
    from dtscope_jupyter.diagnosis.finding import Finding


def where(finding: Finding) -> str:
    """The steps of a finding: step 5; steps 71 to 127; 3 steps from 2 to 40; empty where it has none."""
    steps = sorted(finding.steps)
    if not steps:
        return ""
    if len(steps) == 1:
        return f"step {steps[0]}"
    if steps[-1] - steps[0] + 1 == len(steps):
        return f"steps {steps[0]} to {steps[-1]}"
    return f"{count(len(steps), 'step')} from {steps[0]} to {steps[-1]}"


def price(finding: Finding) -> str:
    """Cost and place: 27.1 ms a step, steps 71 to 127; empty where neither is known."""
    parts = [f"{duration(finding.cost_ms)} a step"] if finding.cost_ms > 0 else []
    return ", ".join([*parts, *([where(finding)] if finding.steps else [])])
