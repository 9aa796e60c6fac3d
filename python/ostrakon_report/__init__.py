# SPDX-License-Identifier: Apache-2.0
"""Draws what Ostrakon's programs write as JSON: plans, simulated steps, scaling studies and runs."""

__version__ = "0.1.0"


class ReportError(Exception):
    """What is wrong with a file or an argument, in one line."""
