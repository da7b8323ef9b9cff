# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dtscope_jupyter.cluster.engines import Engines, connect
from dtscope_jupyter.cluster.world import ClusterWorld

__all__ = ["ClusterWorld", "Engines", "connect"]
