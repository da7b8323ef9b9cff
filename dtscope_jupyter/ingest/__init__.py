# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Kineto traces, Flight Recorder dumps, files of NCCL and samples of devices -> the tables of schema.py."""

from dtscope_jupyter.ingest.importing import Imported, read
from dtscope_jupyter.ingest.merge import combine

__all__ = ["Imported", "combine", "read"]
