# SPDX-License-Identifier: Apache-2.0
"""lm_eval's command, with the model "ostrakon"."""

from lm_eval.__main__ import cli_evaluate

import ostrakon_lm_eval  # noqa: F401 (registers the model)

if __name__ == "__main__":
    cli_evaluate()
