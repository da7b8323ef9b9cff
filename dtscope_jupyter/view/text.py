# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Numbers for people: at most three significant digits, a sensible unit, a dash for what is unknown."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

UNKNOWN = "-"
_TIMES = ((1e-3, 1e6, "ns"), (1.0, 1e3, "µs"), (1e3, 1.0, "ms"), (6e4, 1e-3, "s"), (math.inf, 1 / 6e4, "min"))
_BYTES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_THOUSAND, _HUNDRED, _TEN = 1000, 100, 10


def significant(value: float) -> str:
    """Three significant digits, without an exponent between 0.001 and 10^6; - where unknown."""
    if not math.isfinite(value):
        return UNKNOWN
    size = abs(value)
    if size and (size < 1e-3 or size >= 1e6):  # noqa: PLR2004
        mantissa, _, exponent = f"{value:.2e}".partition("e")
        return f"{mantissa}e{int(exponent)}"
    if size >= _HUNDRED:
        return f"{value:.0f}"
    if size >= _TEN:
        return f"{value:.1f}"
    return f"{value:.{2 - math.floor(math.log10(size))}f}" if size else "0"


def duration(ms: float) -> str:
    """A time given in milliseconds, in ns, µs, ms, s or min."""
    if not math.isfinite(ms):
        return UNKNOWN
    if not ms:
        return "0 ms"
    factor, unit = next((factor, unit) for below, factor, unit in _TIMES if abs(ms) < below)
    return f"{significant(ms * factor)} {unit}"


def size(count: float) -> str:
    """A number of bytes, in B, KiB, MiB, ..."""
    if not math.isfinite(count):
        return UNKNOWN
    power = 0
    while abs(count) >= 1024 and power < len(_BYTES) - 1:  # noqa: PLR2004
        count, power = count / 1024, power + 1
    return f"{count:.0f} B" if power == 0 else f"{significant(count)} {_BYTES[power]}"


def column(values: Iterable[float]) -> list[str]:
    """The numbers of one column with equally many decimals, three digits for the largest; - where unknown."""
    numbers = [float(value) for value in values]
    largest = max((abs(v) for v in numbers if math.isfinite(v)), default=0.0)
    decimals = 0 if largest >= _HUNDRED or not largest else 1 if largest >= _TEN else 2 if largest >= 1 else 3
    return [f"{v:.{decimals}f}" if math.isfinite(v) else UNKNOWN for v in numbers]


def several(ranks: Sequence[int], limit: int = 6) -> str:
    """As in rank 2; ranks 0, 1 and 3; ranks 0 to 1023; ranks 0, 5, 9 and 20 more."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if not ranks:
        return "no rank"
    ordered = sorted(ranks)
    if len(ordered) > 2 and ordered == list(range(ordered[0], ordered[-1] + 1)):  # noqa: PLR2004
        return f"ranks {ordered[0]} to {ordered[-1]}"
    if len(ordered) > limit:
        return f"ranks {', '.join(map(str, ordered[: limit - 1]))} and {len(ordered) - limit + 1} more"
    return f"ranks {', '.join(map(str, ordered[:-1]))} and {ordered[-1]}"


def count(number: int, noun: str) -> str:
    """1 step, 2 steps."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Lines of right-aligned columns, two spaces apart, the head first."""
    lines = [list(head), *map(list, rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines)
