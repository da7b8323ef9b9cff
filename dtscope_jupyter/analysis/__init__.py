# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Tables in, figures out: overlap, waits, bandwidth, breakdown, clocks and the like."""
