# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The picture of a run: one PNG that says what the live panels say, drawn without a browser."""

from __future__ import annotations

from dtscope_jupyter.view.picture.draw import draw

__all__ = ["draw"]
