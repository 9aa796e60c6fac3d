// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/comm/communicator.hpp>
#include <ostrakon/config/timing.hpp>
#include <ostrakon/run/usage_summary.hpp>
#include <ostrakon/trainer/trainer.hpp>
#include <string>

namespace ostrakon::train {

/// Returns the text at the end of a run: overlap with compute, peak rate, memory, the lines of
/// UsageSummary::figures, and a table of times. `tokens`: of a step. May measure the peak rate
/// again, for which it overwrites the trainer's arena. Collective; the text is rank 0's.
std::string describe_end(config::Timers& timers, Trainer& trainer, UsageSummary& usage,
                         mesh::Mesh& mesh, std::int64_t tokens);

}  // namespace ostrakon::train
