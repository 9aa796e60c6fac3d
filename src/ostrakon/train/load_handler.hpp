// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/comm/communicator.hpp>
#include <ostrakon/data/sample_source.hpp>
#include <ostrakon/math/portability.hpp>
#include <ostrakon/runtime/executor.hpp>
#include <ostrakon/train/programs.hpp>
#include <ostrakon/train/step_context.hpp>
#include <ostrakon/train/trainer_settings.hpp>

namespace ostrakon::train {

/// What reads the samples of a micro-batch, to host memory. A rank that can't read continues to
/// where all ranks next agree on the step: that is `clip`, or with early updates the last load
/// before them.
class LoadHandler {
 public:
  /// What it is given, but the settings, must outlive it.
  LoadHandler(StepContext& context, const Programs& programs, const TrainerSettings& settings,
              comm::Communicator& world);
  /// Handles `load`. This object must outlive the executor's runs.
  void install(runtime::Executor& executor);

 private:
  void load(const runtime::ActionBuffers& buffers);
  /// Throws Error where a leaf of `samples` has not `expected` bytes.
  void require_size(const data::SampleSource& samples, std::int64_t expected) const;

  StepContext& context_;
  comm::Communicator& world_;
  std::int64_t samples_;               ///< of a leaf
  std::int64_t parts_;                 ///< leaves that share samples
  std::int64_t pieces_;                ///< of a part
  int last_load_before_updates_ = -1;  ///< micro-batch; -1: updates wait for `clip`
};

}  // namespace ostrakon::train
