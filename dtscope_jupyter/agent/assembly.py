# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Puts an agent together: which collectors there are, and what hangs on what."""

from __future__ import annotations

import atexit
import os
from typing import TYPE_CHECKING

from dtscope_jupyter.agent.buckets import Buckets
from dtscope_jupyter.agent.collectives import Collectives
from dtscope_jupyter.agent.core import Agent
from dtscope_jupyter.agent.discovery import Discovery
from dtscope_jupyter.agent.host import Host
from dtscope_jupyter.agent.steps import Steps

if TYPE_CHECKING:
    from dtscope_jupyter.agent.config import Config


def build(config: Config) -> Agent:
    """An agent with its collectors; recording, unless the config says idle."""
    agent = Agent(config)
    _collectors(agent)
    atexit.register(agent.finish)
    os.register_at_fork(after_in_child=agent.forget)
    if config.record:
        agent.start()
    return agent


def _collectors(agent: Agent) -> None:
    collect = agent.config.collect
    steps = Steps(agent)
    discovery = Discovery(agent, steps)
    steps.on_backward.append(discovery.look)
    if "collectives" in collect:
        collectives = Collectives(agent, steps.overlap)
        buckets = Buckets(agent, collectives)
        discovery.on_ddp.append(buckets.adopt)
        steps.after_backward.append(buckets.backward_ended)
        agent.collectors |= {"collectives": collectives, "buckets": buckets}
    if "host" in collect:
        agent.collectors["host"] = Host(agent, steps.overlap)
    agent.discovery = discovery
    agent.collectors["steps"] = steps
