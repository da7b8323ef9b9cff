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

    `picture` draws it as PNG bytes where the caller has given a way to (a room above this one draws).
    """

    findings: list[Finding]
    ranks: list[int]
    steps: int
    step_ms: float
    picture: Callable[[Diagnosis], bytes] | None = field(default=None, compare=False, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """As docs/report.schema.json describes it."""
        return {
            "format": FORMAT,
            "ranks": list(self.ranks),
            "steps": self.steps,
            "step_ms": plain(float(self.step_ms)),
            "findings": [finding.to_dict() for finding in self.findings],
        }

    def __str__(self) -> str:
        head = f"{len(self.ranks)} ranks, {self.steps} steps"
        if self.step_ms > 0:
            head += f" of {milliseconds(self.step_ms)}"
        if not self.findings:
            return f"{head}: nothing to report."
        return "\n".join([head, *(_lines(finding) for finding in self.findings)])

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        bundle: dict[str, Any] = {"text/plain": str(self)}
        if self.picture is None:
            return bundle, {}
        return bundle | {"image/png": self.picture(self)}, {"image/png": {"width": WIDTH}}


def _lines(finding: Finding) -> str:
    label = f"{finding.kind} ({finding.cause}), confidence {finding.confidence:.2f}"
    return f"{_SIGNS[finding.severity]} {finding.sentence}\n   {label}. {finding.advice}"
