// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

namespace ostrakon::plan {

/// Forward or backward of all units of a stage for one micro-batch.
struct Turn {
  bool forward = true;
  int micro_batch = 0;  ///< in the order in which the stage works through them, from 0

  friend bool operator==(Turn a, Turn b) {
    return a.forward == b.forward && a.micro_batch == b.micro_batch;
  }
};

/// The order of a stage's turns in a step.
using PipelineSchedule = std::vector<Turn>;

/// One forward, one backward: after `stages` - 1 - `stage` forwards, forwards and backwards take
/// turns. So stage s keeps what forward left of at most `stages` - s micro-batches at a time,
/// whatever their number (D. Narayanan et al., "Efficient large-scale language model training on
/// GPU clusters", 2021). With one stage, backward of each micro-batch follows its forward.
PipelineSchedule one_forward_one_backward(int stage, int stages, int micro_batches);

}  // namespace ostrakon::plan
