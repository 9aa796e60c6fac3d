// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <ostrakon/plan/ir/tasks.hpp>
#include <ostrakon/plan/passes/builder.hpp>
#include <ostrakon/plan/passes/gather_pass.hpp>
#include <ostrakon/plan/passes/reduction_pass.hpp>
#include <ostrakon/plan/passes/tape.hpp>
#include <vector>

namespace ostrakon::plan {

/// Writes forward, backward and loss: their actions and the buffers that they use. Other passes
/// gather parameters and reduce gradients.
class ComputePass {
 public:
  ComputePass(Builder& builder, const Tasks& tasks, const GatherPass& gathers,
              ReductionPass& reductions);

  void on(const Task& task, Tape& tape);

 private:
  void load_batch(const Task& task, Tape& tape);
  void load();
  void forward(const Task& task, Tape& tape);
  void copy_logits_to_host(int logits);
  void backward(const Task& task, Tape& tape);
  void backward_phases(const Task& task, Tape& tape, const std::vector<int>& computed);
  void add_loss(const Task& task, const Tape& tape);
  void read_batch(Action& action, const Tape& tape);
  void read_parameters(Action& action);

  /// Gradients that a backward writes.
  struct WrittenGradients {
    Role role = Role::parameter_gradients;
    int buffer = -1;
    AddsTo added_to = AddsTo::nothing;
  };
  std::vector<WrittenGradients> open_gradients(const Task& task, Tape& tape);

  Builder& builder_;
  const GatherPass& gathers_;
  ReductionPass& reductions_;
  std::vector<int> micro_batches_;  // in the order of their first tasks
  std::size_t loaded_ = 0;          // how many of these are loaded
  int batch_on_host_ = -1;          // batch of the last micro-batch that is loaded
};

}  // namespace ostrakon::plan
