// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/pipeline_pass.hpp>

#include <algorithm>
#include <utility>

namespace ostrakon::plan {

PipelinePass::PipelinePass(Builder& builder, const Tasks& tasks, Tapes& tapes)
    : builder_(builder), tapes_(tapes), first_trained_(first_trained(builder.model())) {
  if (builder.plan().grid.stages() == 1) return;
  for (const Task& task : tasks)
    if (begins_turn(task)) turns_.push_back(task);
}

/// The unit with the loss continues from forward to backward in the same turn.
bool PipelinePass::begins_turn(const Task& task) const {
  if (task.work == Work::forward) return task.unit == 0;
  if (task.work != Work::backward || task.unit != builder_.units() - 1) return false;
  return !builder_.model().has_loss || builder_.units() == 1;
}

bool PipelinePass::ends_turn(const Task& task) const {
  return task.work == Work::forward ? task.unit == builder_.units() - 1
                                    : task.work == Work::backward && task.unit == first_trained_;
}

Action& PipelinePass::emit(Kind kind, const Task& task, int peer, std::int64_t bytes) {
  Action& action = builder_.emit(kind, kind == Kind::send ? Stream::send : Stream::receive,
                                 task.unit, task.micro_batch);
  action.peer = peer;
  action.element_bytes = builder_.model().element_bytes;
  action.elements = bytes / action.element_bytes;
  return action;
}

void PipelinePass::before(const Task& task) {
  if (turns_.empty() || !begins_turn(task)) return;
  for (++begun_; received_ < std::min(begun_ + 1, turns_.size()); ++received_)
    receive(turns_[received_]);
}

/// What comes for the turn that begins with `task`.
void PipelinePass::receive(const Task& task) {
  const ModelDescription& model = builder_.model();
  const int stage = builder_.plan().stage;
  Tape& tape = tapes_.of(task);
  if (task.unit == 0 && (task.work == Work::forward || model.has_loss) && model.input_bytes > 0) {
    tape.received = builder_.make_buffer("input", 0, Category::activations, model.input_bytes);
    Action& action = emit(Kind::receive, task, stage - 1, model.input_bytes);
    builder_.use(action, Role::input, tape.received, Access::write);
  }
  if (task.work == Work::backward && !model.has_loss) {
    tape.gradient =
        builder_.make_named("gradient", Category::activations, model.gradient_bytes, Space::device);
    Action& action = emit(Kind::receive, task, stage + 1, model.gradient_bytes);
    builder_.use(action, Role::gradient, tape.gradient, Access::write);
  }
}

void PipelinePass::after(const Task& task) {
  if (turns_.empty()) return;
  const bool is_all = task.work == Work::clip;
  if (!is_all && !ends_turn(task)) return;
  const int sent = std::exchange(sent_, -1), sent_by = sent_by_;
  if (!is_all) send(task);
  if (sent >= 0) builder_.release(sent_by, {sent});
}

/// What the turn that ends with `task` leaves for other stages.
void PipelinePass::send(const Task& task) {
  const ModelDescription& model = builder_.model();
  const int stage = builder_.plan().stage;
  const bool forward = task.work == Work::forward;
  if (forward ? model.has_loss : !model.input_has_gradient) return;
  const Tape& tape = tapes_.of(task);
  sent_ = forward ? tape.units[task.unit].output : tape.gradient;
  sent_by_ = task.unit;
  Action& action =
      emit(Kind::send, task, forward ? stage + 1 : stage - 1, builder_.buffer(sent_).bytes);
  builder_.use(action, forward ? Role::output : Role::gradient, sent_, Access::read);
}

}  // namespace ostrakon::plan
