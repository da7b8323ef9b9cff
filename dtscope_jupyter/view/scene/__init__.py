# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""What a view shows of a run, before any drawing: the map, the telling step, its lanes, the gradients.

Picture, figures and report draw the same scene, so that they can't disagree.
"""
