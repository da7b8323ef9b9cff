# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""See distributed PyTorch training from a notebook cell."""

__version__ = "0.1.0"
