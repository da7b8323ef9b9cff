# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""What observing costs the training thread, and how often each probe may run to stay within the budget.

Hooks that always run are timed as they run in one step of eight (`hook`), probes too (`spent`). What self-timing misses,
such as caches gone cold, is found by a short A/B now and then: 16 steps with all probes, 16 with none, in turn; the
ratio of the median difference to the self-timed sum scales the probes' cost from then on.

Only some steps are looked at closely (`sampled`): DDP's buckets one by one, and all probes but the flat norm; other steps
do next to nothing. On a CPU that is every step where the budget has room, at least one in 16, in a long run one in 32. On a
device what such a step costs, with events around every collective, is measured: it and the next over twice the median of the
others, since a host that runs ahead pays late. The writing thread's time counts in full, as it may hold the interpreter's lock.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from statistics import median, quantiles
from time import thread_time_ns
from typing import TYPE_CHECKING, Any

from dtscope_jupyter.agent.clock import now
from dtscope_jupyter.agent.recorder import PATIENT_S

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dtscope_jupyter.agent.recorder import Recorder

ALWAYS_NS = 30_000
"""A probe this cheap runs with every step, whatever the step takes."""
_NORM_NS, _NORM_CHEAP, _NORM_SHARE = 100_000, 0.01, 0.0075
"""On a CPU a flat norm of so many ns or such a share of a step comes with every step, a dearer one may take the last, whatever the budget:
the optimizer finds cached what it read."""
_MOST_EVERY = 32
"""However dear a probe, one step in so many shows."""
_MOST_ON_CPU, _MOST_LATER, _LATER = 16, 32, 256
"""On a CPU one step in so many is looked at closely, and in so many from that step on."""
_DEVICE_BYTES_PER_NS = 1500.0
"""What a probe's reading costs a device until an A/B says better: 1.5 TB/s."""
_PLAN_EVERY = 16
_MEASURE_EVERY = 8
_TIMED = 2
_NOTE_NS = 2 * 10**9
_FIRST_AB, _AB_STEPS = 32, 32
_SMOOTH = 0.2
_SCALE = (1.0, 4.0)
_FIRST_ON_DEVICE, _LEAST_ON_DEVICE, _MOST_ON_DEVICE = 16, 4, 256
_RARER_AT_ONCE = 4
"""After each sampled step, so that the first plans, which see what starting up costs, make no step in 256 of one in 16."""
_EARLY = 3
"""Before so many times the first interval nothing is planned, so that short runs too have two sampled steps beyond the first."""
_KEPT = 32
_FEW, _NEAR = 4, 10


@dataclass(slots=True)
class Probe:
    """One probe: runs in one step of `every`; `cost_ns` is that of a step in which it ran."""

    weight: float
    every: int = 1
    cost_ns: float = 0.0
    now_ns: int = 0
    compared: bool = True


class Cost:
    """Counts steps by itself, the same on every rank, so that ranks sample the same steps."""

    def __init__(self, recorder: Recorder, budget: float) -> None:
        """`budget` is a share of step time."""
        self.budget = budget
        self.ratio = 0.0
        self.probes = {
            "flat_norm": Probe(0.3, compared=False),
            "local_check": Probe(0.2, compared=False),
            "local_norm": Probe(0.1),
            "synced_norm": Probe(0.1),
            "tiles": Probe(0.1, compared=False),
            "events": Probe(0.3, compared=False),
        }
        self.on_device = False
        self._recorder = recorder
        self._steps = 0
        self._fixed_now = self._probes_now = 0
        self._fixed_ns = self._steady_ns = self._hooks_ns = 0.0
        self._steady_steps = self._planned = 0
        self._step_ns = 0.0
        self._last = 0
        self._noted = now()
        self._scale = 1.0
        self._durations: deque[tuple[bool, int]] = deque(maxlen=_KEPT)
        self._extras: deque[float] = deque(maxlen=_KEPT)
        self._sample_every = 1
        self._sample_ns = self._written_ns = 0.0
        self.measuring = self.timing = False
        self.sampled = True
        self._began = (0, 0.0)
        self._next_ab = _FIRST_AB
        self._comparing = False
        self._times: tuple[list[int], list[int]] = ([], [])
        self._probed: list[int] = []
        self._compared_now = 0

    def begin_on_device(self) -> None:
        """The program trains on a device: probes start rare, and what they cost is not known yet."""
        self.on_device = True
        self._recorder.longest_s = PATIENT_S
        for probe in self.probes.values():
            probe.cost_ns = 0.0
        self._sample_every = self.probes["flat_norm"].every = _FIRST_ON_DEVICE
        self._durations.clear()
        self._choose()

    def begin_anew(self, step: int) -> None:
        """Recording goes on with this step, the same on every rank: what lies between tells nothing, an A/B cut off comes later."""
        self._last, self._steps = 0, step
        self._times, self._probed = ([], []), []
        while self._next_ab < step:
            self._next_ab *= 8

    def _choose(self) -> None:
        """What is done in this step: `sampled`, looked at closely; `measuring` and `timing`, this and the other hooks are timed."""
        self._comparing = not self.on_device and self._next_ab <= self._steps < self._next_ab + _AB_STEPS
        self.sampled = self._comparing or self._steps % self._sample_every == 0
        self.measuring = self._steps % _MEASURE_EVERY == 1
        self.timing = self.sampled and (self.on_device or self._steps % _MEASURE_EVERY == 0)

    def due(self, name: str) -> bool:
        """Whether the probe runs in this step."""
        if self.on_device and name != "flat_norm":
            return self.sampled
        probe = self.probes[name]
        if probe.compared and self._comparing:
            return self._steps % 2 == 0
        return self._steps % probe.every == 0

    def turn(self, name: str) -> int:
        """How many times the probe has been due before this step, by its present rate; the same on ranks of one rate."""
        return self._steps // (self._sample_every if self.on_device else self.probes[name].every)

    def spent(self, name: str, ns: int, device_bytes: int = 0) -> None:
        """The probe took this long on the training thread, or makes the device read so much."""
        self.probes[name].now_ns += max(ns, int(device_bytes / _DEVICE_BYTES_PER_NS))
        self._probes_now += ns

    def began(self) -> int:
        """As a hook that always runs begins; 0 in the steps in which these are not timed."""
        return thread_time_ns() - self._probes_now if self.measuring else 0

    def hook(self, began: int) -> None:
        """It ends; what probes took within it is theirs."""
        if began and self.measuring:
            self._fixed_now += max(thread_time_ns() - self._probes_now - began, 0)

    def timed(self, hook: Callable[..., bool], *args: Any) -> bool:
        """Calls a hook that always runs, in a step in which these are timed."""
        began = self.began()
        done = hook(*args)
        self.hook(began)
        return done

    def look_began(self) -> int:
        """As a hook of the steps that are looked at closely begins; 0 where it is not timed."""
        return thread_time_ns() - self._probes_now if self.timing else 0

    def looked(self, began: int) -> None:
        """It ends."""
        if began:
            self.spent("events", thread_time_ns() - self._probes_now - began)

    def fixed(self, ns: int) -> None:
        """Hooks that always run took this long."""
        self._fixed_now += ns

    def step_closed(self) -> int:
        """A step has ended: learns, plans, and says what it costs; what else is done now ends with `hook` of the result."""
        began = thread_time_ns() if self._steps % _MEASURE_EVERY == 0 else 0
        time = now()
        if self._last:
            self._learn(time - self._last)
        self._last = time
        self._fixed_now = self._probes_now = 0
        self._steps += 1
        if self._steps % _PLAN_EVERY == 0:
            self._plan()
        self._choose()
        if time - self._noted > _NOTE_NS and self._steps > _PLAN_EVERY:
            self._noted = time
            self._recorder.note("observer", "cost_ratio", self.ratio, f"observing costs {self.ratio:.2%} of a step{self._parts()}")
        return began

    @property
    def plain(self) -> int:
        """How many steps from this one on nobody has plans for; with the last of them they are made anew."""
        if self.on_device or self.sampled or self.measuring or self._comparing:
            return 0
        return self._sample_every - self._steps % self._sample_every

    @property
    def stamps(self) -> bool:
        """Whether gradients are stamped in this step: where few are looked at, in these alone, as each stamp is a call from C++."""
        return self.sampled or not (self.on_device or self._sample_every >= _MOST_ON_CPU)

    def passed(self, ends: list[int]) -> None:
        """Steps that nobody had plans for ended at these times."""
        for end in ends:
            self._durations.append((False, end - self._last))
            self._last = end
        self._steps += len(ends)
        self._steady_steps += len(ends)
        self.measuring, self._fixed_now = False, 0

    def passes(self, count: int) -> None:
        """So many such steps have ended by now; one of them is timed."""
        if self.measuring:
            self._steady_ns = _smooth(self._steady_ns, self._fixed_now)
            self._learn_probes()
            self._fixed_now = self._probes_now = 0
        self.measuring = count == _TIMED

    def next(self, name: str) -> tuple[int, int]:
        """In how many steps the probe runs, and every how many from then on."""
        every = self.probes[name].every
        return -self._steps % every, every

    @property
    def step_ns(self) -> float:
        """A step's time, the median of the last ones; 0 before the second."""
        return self._step_ns

    def _learn(self, duration: int) -> None:
        self._durations.append((self.sampled, duration))
        if self.on_device and len(self._durations) > 1 and self._durations[-2][0]:
            found = extra(list(self._durations)[-_NEAR:])
            self._extras += [] if found is None else [found]
        if not self._step_ns or self._steps % _PLAN_EVERY == _PLAN_EVERY - 1:
            self._step_ns = float(median(length for _, length in self._durations))
        if self.measuring:
            self._fixed_ns = _smooth(self._fixed_ns, self._fixed_now)
        self._compared_now = 0
        if self._probes_now:
            self._learn_probes()
        if self._comparing:
            self._compare(duration)

    def _learn_probes(self) -> None:
        self._compared_now = sum(probe.now_ns for probe in self.probes.values() if probe.compared)
        for probe in self.probes.values():
            if probe.now_ns:
                probe.cost_ns, probe.now_ns = _smooth(probe.cost_ns, probe.now_ns), 0

    def _compare(self, duration: int) -> None:
        self._times[self._steps % 2].append(duration)
        if self._steps % 2 == 0:
            self._probed.append(self._compared_now)
        if self._steps == self._next_ab + _AB_STEPS - 1:
            self._rescale()
            self._times, self._probed = ([], []), []
            self._next_ab = self._next_ab * 8

    def _rescale(self) -> None:
        """Self-timing stands where the comparison can't tell more from noise."""
        with_probes, without, timed = (median(values) for values in (*self._times, self._probed))
        low, _, high = quantiles(self._times[1], n=4)
        difference, error = with_probes - without, (high - low) / math.sqrt(len(self._times[1]))
        if timed > 0:
            found = difference / timed if difference > 2 * error else 1.0
            self._scale = min(max(found, _SCALE[0]), _SCALE[1])
        text = "median step with all probes over without, 16 steps each, in turn"
        self._recorder.note("observer", "ab_ratio", with_probes / without, text)

    def _plan(self) -> None:
        """Shares what the budget leaves among the probes."""
        self._written_ns = self._writer_ns()
        self._hooks_ns = self._mean_hooks()
        room = max(self.budget * self._step_ns - self._hooks_ns - self._written_ns, 0.0)
        total = self._plan_on_device(room) if self.on_device else self._plan_on_cpu(room)
        self.ratio = total / self._step_ns if self._step_ns else 0.0

    def _mean_hooks(self) -> float:
        """Of the steps since the last plan, some of which left no more than marks."""
        steps, self._planned = max(self._steps - self._planned, 1), self._steps
        marked, self._steady_steps = min(self._steady_steps / steps, 1.0), 0
        return (1 - marked) * self._fixed_ns + marked * (self._steady_ns or self._fixed_ns)

    def _plan_on_cpu(self, room: float) -> float:
        """Probes but the flat norm run in steps that are sampled, and no more often."""
        costs = {name: probe.cost_ns * (self._scale if probe.compared else 1.0) for name, probe in self.probes.items()}
        most = _MOST_ON_CPU if self._steps < _LATER else _MOST_LATER
        self._sample_every = min(_every(costs["events"], room * self.probes["events"].weight), most)
        total = self._hooks_ns + self._written_ns
        for name, probe in self.probes.items():
            probe.every = max(_every(costs[name], room * probe.weight), self._sample_every)
            if name == "flat_norm":
                probe.every = self._norm_every(costs[name], room * probe.weight)
            total += costs[name] / (self._sample_every if name == "events" else probe.every)
        return total

    def _norm_every(self, cost: float, share: float) -> int:
        if cost <= max(_NORM_NS, _NORM_CHEAP * self._step_ns):
            return 1
        return _every(cost, max(share, _NORM_SHARE * self._step_ns))

    def _plan_on_device(self, room: float) -> float:
        flat = self.probes["flat_norm"]
        if flat.cost_ns:
            flat.every = _every(flat.cost_ns, room * flat.weight)
        if self._steps >= _EARLY * _FIRST_ON_DEVICE:
            self._sample_ns = self._measured()
            wanted = _power(self._sample_ns, room * (1 - flat.weight))
            looked = self._steps % self._sample_every == _PLAN_EVERY % self._sample_every
            least, rarer = max(_LEAST_ON_DEVICE, self._sample_every // 2), _RARER_AT_ONCE if looked else 1
            self._sample_every = int(min(max(wanted, least), rarer * self._sample_every, _MOST_ON_DEVICE))
        return self._hooks_ns + self._written_ns + flat.cost_ns / flat.every + self._sample_ns / self._sample_every

    def _measured(self) -> float:
        """What a sampled step costs: by the clock, at least what was timed itself."""
        timed = sum(probe.cost_ns for name, probe in self.probes.items() if name != "flat_norm")
        return max(sampled_cost(self._extras), timed)

    def _parts(self) -> str:
        if not self.on_device:
            return self._parts_on_cpu()
        flat = self.probes["flat_norm"]
        shares = (self._hooks_ns, self._written_ns, flat.cost_ns / flat.every, self._sample_ns / self._sample_every)
        hooks, writer, norm, samples = (share / max(self._step_ns, 1.0) for share in shares)
        return f": hooks {hooks:.2%}, writer {writer:.2%}, norm {norm:.2%}, a closer look at one step in {self._sample_every} {samples:.2%}"

    def _parts_on_cpu(self) -> str:
        hooks, writer = (share / max(self._step_ns, 1.0) for share in (self._hooks_ns, self._written_ns))
        rest = max(self.ratio - hooks - writer, 0.0)
        return f": hooks {hooks:.2%}, writer {writer:.2%}, norms and a closer look at one step in {self._sample_every} {rest:.2%}"

    def _writer_ns(self) -> float:
        """The writing thread's time for a step."""
        (at, used), self._began = self._began, (now(), self._recorder.thread_s)
        wall = self._began[0] - at
        return 0.0 if not at else 1e9 * (self._began[1] - used) / wall * self._step_ns


def extra(durations: Sequence[tuple[bool, int]]) -> float | None:
    """What a sampled step and the next took longer than two of the steps before, by their median; None unless these come last."""
    *before, sampled, following = durations
    if not sampled[0] or following[0] or len(before) < _FEW:
        return None
    return sampled[1] + following[1] - 2 * median(duration for _, duration in before)


def sampled_cost(extras: Sequence[float]) -> float:
    """The median of what sampled steps took longer, ns; 0 where that is lost in their spread."""
    if len(extras) < _FEW:
        return 0.0
    low, middle, high = quantiles(extras, n=4)
    return middle if middle > (high - low) / math.sqrt(len(extras)) else 0.0


def _power(cost: float, share: float) -> float:
    """The least power of two that brings the cost under the share."""
    if cost <= share:
        return 1
    return math.inf if share <= 0 else float(2 ** math.ceil(math.log2(cost / share)))


def _every(cost: float, share: float) -> int:
    return int(min(_power(cost, max(share, 0.0)), _MOST_EVERY)) if cost > ALWAYS_NS else 1


def _smooth(before: float, value: float) -> float:
    return before + _SMOOTH * (value - before) if before else float(value)
