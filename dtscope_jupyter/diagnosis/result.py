# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The findings together, as text, as JSON and as a display."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dtscope_jupyter.diagnosis.finding import Finding, Severity, plain

if TYPE_CHECKING:
    from collections.abc import Callable

FORMAT = 1
WIDTH = 1000
"""Logical pixels of the picture, which is drawn at twice as many."""
_SIGNS = {Severity.CRITICAL: "!!", Severity.WARNING: "! ", Severity.INFO: "i "}


@dataclass(frozen=True)
class Diagnosis:
    """What was found, most costly first, and over how much data.

    `steps` are those that it rests on and `step_ms` their median, `recorded` all whole steps and `mean_ms` their mean (that of the
    ranks' means), which includes warm-up and what disturbed a step: 0 and NaN where nobody counted them.
    `ended` says how a run ended that went wrong, "" of others; `remarks` what limits all findings, a sentence each.
    `picture` draws it as PNG bytes where the caller has given a way to (a room above this one draws).
    """

    findings: list[Finding]
    ranks: list[int]
    steps: int
    step_ms: float
    ended: str = ""
    remarks: tuple[str, ...] = ()
    picture: Callable[[Diagnosis], bytes] | None = field(default=None, compare=False, repr=False)
    recorded: int = 0
    mean_ms: float = math.nan

    def to_dict(self) -> dict[str, Any]:
        """As docs/report.schema.json describes it."""
        return {
            "format": FORMAT,
            "ranks": list(self.ranks),
            "steps": self.steps,
            "step_ms": plain(float(self.step_ms)),
            "recorded_steps": max(self.recorded, self.steps),
            "mean_step_ms": plain(float(self.mean_ms)),
            "findings": [finding.to_dict() for finding in self.findings],
            "ended": self.ended,
            "remarks": list(self.remarks),
        }

    def __str__(self) -> str:
        head = self.scope + self._times
        said = [line for line in (self.ended, *self.remarks) if line and all(line != finding.sentence for finding in self.findings)]
        if not self.findings:
            return "\n".join([f"{head}: nothing to report.", *said])
        return "\n".join([head, *said, *(_lines(finding) for finding in self.findings)])

    @property
    def scope(self) -> str:
        """As in 4 ranks, 1 step."""
        return f"{_count(len(self.ranks), 'rank')}, {_count(max(self.recorded, self.steps), 'step')}"

    @property
    def _times(self) -> str:
        """As in: , mean 6.68 ms, median 1.70 ms of the 29 judged."""
        if not self.step_ms > 0:
            return ""
        if self.recorded <= 1 or not math.isfinite(self.mean_ms):
            return f" of {_three_digits(self.step_ms)}"
        judged = f" of the {self.steps} judged" if self.steps < self.recorded else ""
        return f", mean {_three_digits(self.mean_ms)}, median {_three_digits(self.step_ms)}{judged}"

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        bundle: dict[str, Any] = {"text/plain": str(self)}
        if self.picture is None:
            return bundle, {}
        return bundle | {"image/png": self.picture(self)}, {"image/png": {"width": WIDTH}}


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _three_digits(ms: float) -> str:
    value, unit = (ms / 1e3, "s") if ms >= 1e3 else (ms, "ms")  # noqa: PLR2004 # a second
    return f"{value:.{max(0, 2 - math.floor(math.log10(value)))}f} {unit}"


def _lines(finding: Finding) -> str:
    label = f"{finding.kind} ({finding.cause}), confidence {finding.confidence:.2f}"
    return f"{_SIGNS[finding.severity]} {finding.sentence}\n   {label}. {finding.advice}"
