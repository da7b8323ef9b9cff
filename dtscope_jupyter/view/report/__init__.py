# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The last output of a run: a picture and a text that every viewer of notebooks shows."""

from __future__ import annotations

from dtscope_jupyter.view.report.report import Report

__all__ = ["Report"]
