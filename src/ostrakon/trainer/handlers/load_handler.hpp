// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/comm/communicator.hpp>
#include <ostrakon/data/sample_source.hpp>
#include <ostrakon/math/portability.hpp>
#include <ostrakon/runtime/executor.hpp>
#include <ostrakon/trainer/handlers/step_context.hpp>
#include <ostrakon/trainer/programs.hpp>
#include <ostrakon/trainer/trainer_settings.hpp>

namespace ostrakon::train {

/// Reads the samples of a micro-batch to host memory, and counts the targets that count. A rank
/// that can't read continues until all ranks next agree on the step: at `clip`, or with early
/// updates at the last load before them.
class LoadHandler {
 public:
  /// All arguments but the settings must outlive it.
  LoadHandler(StepContext& context, const Programs& programs, const StepSettings& settings,
              comm::Communicator& world);
  /// Sets the handler of `load`. This object must outlive the executor's runs.
  void install(runtime::Executor& executor);

 private:
  void load(const runtime::ActionBuffers& buffers);
  std::int64_t counted_terms(HostView<const unsigned char*> batch, std::int64_t first) const;
  void agree_before_updates();
  bool has_targets() const { return loss_.first_target >= 0; }
  /// Throws Error where a leaf of `samples` does not have `expected` bytes.
  void require_size(const data::SampleSource& samples, std::int64_t expected) const;

  StepContext& context_;
  comm::Communicator& world_;
  model::LossTerms loss_;
  std::int64_t step_terms_;
  bool counts_ = false;   ///< whether this rank counts the targets of the leaves that it loads
  std::int64_t samples_;  ///< samples per leaf
  std::int64_t parts_;    ///< leaves that share samples
  std::int64_t pieces_;   ///< pieces per part
  int last_load_before_updates_ = -1;  ///< micro-batch; -1: updates wait for `clip`
};

}  // namespace ostrakon::train
