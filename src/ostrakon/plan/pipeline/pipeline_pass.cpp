// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/pipeline/pipeline_pass.hpp>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace ostrakon::plan {

PipelinePass::PipelinePass(Builder& builder, const Pipeline& pipeline, const Tasks& tasks,
                           Tapes& tapes, SumsPass& sums)
    : builder_(builder),
      pipeline_(pipeline),
      tapes_(tapes),
      sums_(sums),
      chunks_(chunks_of(builder.model())),
      received_(static_cast<std::size_t>(pipeline.stages), 0) {
  if (pipeline.stages == 1) return;
  for (int from = 0; from < pipeline.stages; ++from)
    coming_.push_back(messages(pipeline, from, builder.plan().stage));
  list_legs(tasks);
}

const Chunk& PipelinePass::chunk(const Task& task) const {
  return *std::find_if(chunks_.begin(), chunks_.end(),
                       [&](const Chunk& one) { return one.units.has(task.unit); });
}

void PipelinePass::list_legs(const Tasks& tasks) {
  int turn = -1;
  for (const Task& task : tasks) {
    if (!task.computes()) continue;
    const bool is_new = task.turn != turn;
    turn = task.turn;
    const std::vector<Message> received = is_new ? needs(task) : std::vector<Message>();
    const bool continues = !legs_.empty() && received.empty() &&
                           legs_.back().last.micro_batch == task.micro_batch &&
                           chunk(legs_.back().last).number == chunk(task).number;
    if (is_new && !continues) legs_.push_back({task, task, received});
    legs_.back().last = task;
  }
}

/// Returns the messages from other stages that a turn which begins with this task needs.
std::vector<Message> PipelinePass::needs(const Task& first) const {
  const Chunk& its = chunk(first);
  const bool begins_chunk = first.unit == its.units.first;
  const bool has_loss = computes_loss(builder_.model(), first.unit);
  std::vector<Message> messages;
  // The unit with the loss has no forward: its backward begins the turn.
  if (begins_chunk && (first.work == Work::forward || has_loss) && its.input_bytes > 0)
    messages.push_back({true, its.number, first.micro_batch});
  if (first.work == Work::backward && !has_loss)
    messages.push_back({false, its.number, first.micro_batch});
  return messages;
}

Action& PipelinePass::emit(Kind kind, const Task& task, int peer, std::int64_t bytes) {
  Action& action = builder_.emit(kind, task.unit, task.micro_batch);
  action.peer = peer;
  action.span = builder_.plan().grid.span(Axis::pipeline);
  action.element_bytes = builder_.model().element_bytes;
  action.elements = bytes / action.element_bytes;
  return action;
}

void PipelinePass::before(const Task& task) {
  if (begun_ == legs_.size() || !(task == legs_[begun_].first)) return;
  for (++begun_; asked_ < std::min(begun_ + 1, legs_.size()); ++asked_)
    for (const Message& message : legs_[asked_].received)
      receive_up_to(message, legs_[asked_].first);
}

/// Posts receives up to a message: earlier sends of the same stage come first, even if they are
/// needed later.
void PipelinePass::receive_up_to(Message wanted, const Task& task) {
  const int from = pipeline_.stage_of(wanted.forward ? wanted.to - 1 : wanted.to + 1);
  const std::vector<Message>& coming = coming_[from];
  std::size_t& next = received_[from];
  const auto found = std::find(coming.begin(), coming.end(), wanted);
  if (found == coming.end()) throw std::logic_error("a stage needs what no other one sends");
  for (; next <= static_cast<std::size_t>(found - coming.begin()); ++next)
    receive(coming[next], from, task);
}

void PipelinePass::receive(Message message, int from, const Task& for_task) {
  const ModelDescription& model = builder_.model();
  const Chunk& its = *std::find_if(chunks_.begin(), chunks_.end(),
                                   [&](const Chunk& one) { return one.number == message.to; });
  Task task = for_task;
  task.unit = message.forward ? its.units.first : its.units.end - 1;
  task.micro_batch = message.micro_batch;
  Tape& tape = tapes_.of(task);
  const Role role = message.forward ? Role::input : Role::gradient;
  const std::int64_t bytes = message.forward ? its.input_bytes : model.gradient_bytes;
  int& buffer = message.forward ? tape.input(task.unit) : tape.gradient(task.unit);
  buffer = message.forward
               ? builder_.make_buffer("input", task.unit, Category::activations, bytes)
               : builder_.make_named("gradient", Category::activations, bytes, Space::device);
  Action& action = emit(Kind::receive, task, from, bytes);
  builder_.use(action, role, buffer, Access::write);
}

void PipelinePass::share(const Task& task) {
  if (task.work != Work::share) return;
  const PlannedUnit& unit = builder_.state(task.unit);
  const bool receives = unit.tied_stages.source >= 0;
  const std::int64_t bytes = builder_.buffer(unit.compute()).bytes;
  Action& action = emit(receives ? Kind::receive : Kind::send, task,
                        receives ? unit.tied_stages.source : unit.tied_stages.replica, bytes);
  builder_.use(action, Role::shard, unit.compute(), receives ? Access::write : Access::read);
  // The update is received only once `clip` is known: after a failed step nothing is sent.
  if (receives) sums_.follow_clip(action);
}

void PipelinePass::after(const Task& task) {
  if (legs_.empty()) return;
  const bool is_all = task.work == Work::clip;
  const bool ends_leg = begun_ > 0 && task == legs_[begun_ - 1].last;
  if (!is_all && !ends_leg) return;
  const int sent = std::exchange(sent_, -1), sent_by = sent_by_;
  if (!is_all) send(task);
  if (sent >= 0) builder_.release(sent_by, {sent});
}

/// Sends the results of the leg that ends with `task` to other stages.
void PipelinePass::send(const Task& task) {
  const Chunk& its = chunk(task);
  const bool forward = task.work == Work::forward;
  const bool is_sent =
      forward ? its.number < pipeline_.last_chunk() : its.number > pipeline_.first_backward;
  const UnitRange units = its.units;
  if (!is_sent || task.unit != (forward ? units.end - 1 : units.first)) return;
  Tape& tape = tapes_.of(task);
  sent_ = forward ? tape.units[task.unit].output : tape.gradient(task.unit);
  sent_by_ = task.unit;
  const int peer = pipeline_.stage_of(forward ? its.number + 1 : its.number - 1);
  Action& action = emit(Kind::send, task, peer, builder_.buffer(sent_).bytes);
  builder_.use(action, forward ? Role::output : Role::gradient, sent_, Access::read);
}

}  // namespace ostrakon::plan
