# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The one exception that users see: what is wrong, the value, and what to do, in one line."""


class DtscopeError(ValueError):
    """A request that can't be met; the message is one line fit for a user."""
