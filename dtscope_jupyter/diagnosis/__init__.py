# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a run, who is to blame, what it costs and what to change."""

from dtscope_jupyter.diagnosis.finding import CAUSES, Finding, Severity
from dtscope_jupyter.diagnosis.result import Diagnosis
from dtscope_jupyter.diagnosis.rules import diagnose

__all__ = ["CAUSES", "Diagnosis", "Finding", "Severity", "diagnose"]
