# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The findings together, as text, as JSON and as a display."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dtscope_jupyter.diagnosis.finding import Finding, Severity, milliseconds, plain

if TYPE_CHECKING:
    from collections.abc import Callable

FORMAT = 1
WIDTH = 1000
"""Logical pixels of the picture, which is drawn at twice as many."""
_SIGNS = {Severity.CRITICAL: "!!", Severity.WARNING: "! ", Severity.INFO: "i "}


@dataclass(frozen=True)
class Diagnosis:
    """What was found, most costly first, and over how much data.

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

    def to_dict(self) -> dict[str, Any]:
        """As docs/report.schema.json describes it."""
        return {
            "format": FORMAT,
            "ranks": list(self.ranks),
            "steps": self.steps,
            "step_ms": plain(float(self.step_ms)),
            "findings": [finding.to_dict() for finding in self.findings],
            "ended": self.ended,
            "remarks": list(self.remarks),
        }

    def __str__(self) -> str:
        head = self.scope + (f" of {milliseconds(self.step_ms)}" if self.step_ms > 0 else "")
        said = [line for line in (self.ended, *self.remarks) if line]
        if not self.findings:
            return "\n".join([f"{head}: nothing to report.", *said])
        return "\n".join([head, *said, *(_lines(finding) for finding in self.findings)])

    @property
    def scope(self) -> str:
        """As in 4 ranks, 1 step."""
        return f"{_count(len(self.ranks), 'rank')}, {_count(self.steps, 'step')}"

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        bundle: dict[str, Any] = {"text/plain": str(self)}
        if self.picture is None:
            return bundle, {}
        return bundle | {"image/png": self.picture(self)}, {"image/png": {"width": WIDTH}}


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _lines(finding: Finding) -> str:
    label = f"{finding.kind} ({finding.cause}), confidence {finding.confidence:.2f}"
    return f"{_SIGNS[finding.severity]} {finding.sentence}\n   {label}. {finding.advice}"
