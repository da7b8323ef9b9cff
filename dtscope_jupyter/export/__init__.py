# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""A run, written for other tools."""

from dtscope_jupyter.export.writing import FORMATS, write

__all__ = ["FORMATS", "write"]
