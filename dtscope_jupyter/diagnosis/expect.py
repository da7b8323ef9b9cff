# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Assertions on a run, for tests and CI: `dts.expect(run).overlap_ratio(at_least=0.6).no_findings()`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, Self

from dtscope_jupyter.analysis.overlap import overlap
from dtscope_jupyter.diagnosis.finding import CAUSES, Severity
from dtscope_jupyter.errors import DtscopeError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    import pyarrow as pa

    from dtscope_jupyter.diagnosis.finding import Finding
    from dtscope_jupyter.diagnosis.result import Diagnosis

_ORDER = list(Severity)


class _Run(Protocol):
    @property
    def tables(self) -> Mapping[str, pa.Table]: ...

    def diagnose(self) -> Diagnosis: ...


def expect(run: _Run) -> Expectation:
    """Starts a chain of assertions on a run; each raises AssertionError with the figure that it found."""
    return Expectation(run)


class Expectation:
    """What is expected of a run; every check returns the expectation, so that checks chain."""

    def __init__(self, run: _Run) -> None:
        self._run = run
        self._found: Diagnosis | None = None

    def overlap_ratio(self, *, at_least: float = 0.0, at_most: float = 1.0) -> Self:
        """The overlap ratio of all ranks together, sum of overlap over sum of communication, lies within the bounds."""
        frame = overlap(self._run.tables, by="rank")
        comm, hidden = float(frame["comm_ms"].sum()), float(frame["overlap_ms"].sum())
        ratio = hidden / comm if comm > 0 else float("nan")
        self._check(at_least <= ratio <= at_most, f"overlap ratio is {ratio:.3f}, expected {_between(at_least, at_most)}")
        return self

    def step_ms(self, *, at_most: float) -> Self:
        """The median step takes no longer."""
        step = self._diagnosis.step_ms
        self._check(step <= at_most, f"the median step takes {step:.3g} ms, expected at most {at_most:g} ms")
        return self

    def no_findings(self, *, above: str = "info") -> Self:
        """Nothing was found of a severity above `above`: with "info" neither warnings nor critical findings."""
        if above not in _ORDER:
            raise DtscopeError(f"no severity {above!r}; take one of {', '.join(_ORDER)}")
        least = _ORDER.index(Severity(above)) + 1
        bad = [finding for finding in self._diagnosis.findings if _ORDER.index(finding.severity) >= least]
        self._check(not bad, f"expected no findings above {above}, found: {'; '.join(each.sentence for each in bad)}")
        return self

    def finding(self, kind: str, *, cause: str | None = None, rank: int | None = None) -> Self:
        """A finding of the kind is there, of that cause and with that rank where given."""
        if kind not in CAUSES:
            raise DtscopeError(f"no kind of finding {kind!r}; there are {', '.join(CAUSES)}")
        fits = [each for each in self._diagnosis.findings if _fits(each, kind, cause, rank)]
        wanted = " ".join(filter(None, (kind, cause and f"({cause})", None if rank is None else f"of rank {rank}")))
        found = "; ".join(f"{each.kind} ({each.cause}) of ranks {list(each.ranks)}" for each in self._diagnosis.findings) or "nothing"
        self._check(bool(fits), f"expected {wanted}, found: {found}")
        return self

    def __getattr__(self, name: str) -> Any:
        """Every kind is a check of its own: `.straggler(rank=2)`, `.low_overlap()`."""
        if name not in CAUSES:
            raise AttributeError(
                f"no expectation {name!r}; there are overlap_ratio, step_ms, no_findings, finding and the kinds: {', '.join(CAUSES)}"
            )
        return lambda cause=None, rank=None: self.finding(name, cause=cause, rank=rank)

    @property
    def _diagnosis(self) -> Diagnosis:
        if self._found is None:
            self._found = self._run.diagnose()
        return self._found

    @staticmethod
    def _check(holds: bool | np.bool_, message: str) -> None:  # noqa: FBT001 - the one thing it takes
        if not holds:
            raise AssertionError(message)


def _fits(finding: Finding, kind: str, cause: str | None, rank: int | None) -> bool:
    return finding.kind == kind and cause in (None, finding.cause) and (rank is None or rank in finding.ranks)


def _between(at_least: float, at_most: float) -> str:
    if at_most >= 1:
        return f"at least {at_least:g}"
    return f"at most {at_most:g}" if at_least <= 0 else f"{at_least:g} to {at_most:g}"
