# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The one exception that users see: what is wrong, the value, and what to do, in one line; and the words of a lost peer."""

from __future__ import annotations

PEER_LOST = (
    "Connection closed by peer",
    "Connection reset by peer",
    "Broken pipe",
    "NCCL remote process exited",
    "remote process exited or there was a network error",
    "failed to recv, got 0 bytes",
    "DistNetworkError",
)
"""What the backends of torch.distributed say where another rank is gone: that one's end is the cause."""


class DtscopeError(ValueError):
    """A request that can't be met; the message is one line fit for a user."""
