# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Puts an agent together: which collectors there are, and what hangs on what."""

from __future__ import annotations

import atexit
import logging
import os
from typing import TYPE_CHECKING

import torch

from dtscope_jupyter.agent import signals
from dtscope_jupyter.agent.buckets import Buckets
from dtscope_jupyter.agent.collectives import Collectives
from dtscope_jupyter.agent.collector import Collector
from dtscope_jupyter.agent.core import Agent
from dtscope_jupyter.agent.device_host import DeviceHost
from dtscope_jupyter.agent.devices import Devices
from dtscope_jupyter.agent.discovery import Discovery
from dtscope_jupyter.agent.faults import Faults
from dtscope_jupyter.agent.functional import Functional
from dtscope_jupyter.agent.gradients import Gradients
from dtscope_jupyter.agent.host import Host
from dtscope_jupyter.agent.server import Server
from dtscope_jupyter.agent.steps import Steps
from dtscope_jupyter.agent.tile_collector import TileCollector
from dtscope_jupyter.agent.window import Window

if TYPE_CHECKING:
    from dtscope_jupyter.agent.config import Config

_log = logging.getLogger(__name__)


def build(config: Config) -> Agent:
    """An agent with its collectors; recording, unless the config says idle."""
    agent = Agent(config)
    _collectors(agent)
    _listen(agent)
    atexit.register(agent.finish)
    os.register_at_fork(after_in_child=agent.forget)
    if config.record:
        agent.start()
    return agent


def _collectors(agent: Agent) -> None:
    """The order of `drains` matters: steps are noted first and written last, with what the others found."""
    collect = agent.config.collect
    steps = Steps(agent)
    discovery = agent.discovery = Discovery(agent, steps)
    steps.on_backward.append(discovery.look)
    steps.on_optimizer.append(discovery.optimizer)
    agent.drains.append(steps.collect)
    agent.progress.on_join.append(lambda step: agent.cost.begin_anew(step - 1))  # which closes now
    faults = Faults(agent, agent.config.faults) if agent.config.faults else None
    buckets = _add_collectives(agent, steps, discovery, faults) if "collectives" in collect else None
    if faults is not None:
        _rehearse(faults, steps, buckets)
    if "host" in collect:
        agent.host = Host(agent, steps.overlap)
        _add(agent, "host", agent.host)
        waits = DeviceHost(agent, agent.host)
        _add(agent, "host_sync", waits)
        if torch.backends.cuda.is_built():
            steps.on_close.append(waits.step_closed)
    if collect & {"gradients", "gradient_tiles"}:
        _add_gradients(agent, steps, discovery, buckets)
    if "devices" in collect:
        _add(agent, "devices", Devices(agent))
    window = agent.window = Window(agent, steps, sampled="spans" in collect)
    _add(agent, "spans", window)
    steps.on_close.append(window.boundary)
    _add(agent, "steps", steps)


def _add(agent: Agent, name: str, collector: Collector) -> None:
    agent.collectors[name] = collector
    if type(collector).drain is not Collector.drain:
        agent.drains.append(collector.drain)


def _add_collectives(agent: Agent, steps: Steps, discovery: Discovery, faults: Faults | None) -> Buckets:
    collectives = Collectives(agent, steps.overlap, faults)
    buckets = Buckets(agent, collectives)
    discovery.on_ddp.append(buckets.adopt)
    buckets.on_made.append(discovery.expect)
    steps.on_backward += [collectives.backward_begins, buckets.backward_begins]
    steps.on_close.append(collectives.step_closed)
    steps.gates.append(collectives.settled)
    steps.expected = buckets.expected
    steps.untimed = collectives.counted.closed
    steps.after_backward.append(buckets.backward_ended)
    _add(agent, "collectives", collectives)
    _add(agent, "buckets", buckets)
    _add(agent, "functional", Functional(agent, collectives))
    return buckets


def _rehearse(faults: Faults, steps: Steps, buckets: Buckets | None) -> None:
    """Faults come before what measures them."""
    steps.on_backward.append(faults.before_backward)
    steps.after_backward.insert(0, faults.after_backward)
    steps.on_close.append(faults.step_closed)
    if buckets is not None:
        buckets.before_reduce.append(faults.before_reduce)


def _add_gradients(agent: Agent, steps: Steps, discovery: Discovery, buckets: Buckets | None) -> None:
    gradients = Gradients(agent, steps)
    discovery.on_model.append(gradients.model_found)
    if buckets is not None:
        buckets.before_reduce.append(gradients.bucket)
        buckets.at_last.append(gradients.glance)
        buckets.quiet_if.append(gradients.goes_quiet)
    steps.on_backward.append(gradients.backward_begins)
    steps.after_backward.append(gradients.after_backward)
    steps.before_optimizer.append(gradients.before_optimizer)
    steps.gates.append(gradients.settled)
    agent.progress.before_close.append(gradients.before_close)
    agent.gradients = gradients
    _add(agent, "gradients", gradients)
    if "gradient_tiles" in agent.config.collect:
        tiles = TileCollector(agent, gradients.parameters)
        steps.before_optimizer.append(tiles.before_optimizer)
        _add(agent, "gradient_tiles", tiles)


def _listen(agent: Agent) -> None:
    try:
        agent.at_finish(Server(agent).close)
    except OSError as error:
        _log.warning("dtscope: rank %d can't be asked anything: %s", agent.config.rank, error)
    signals.register(agent)
