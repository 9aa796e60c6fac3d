// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/passes/compute_pass.hpp>

#include <functional>
#include <ostrakon/plan/passes/phases.hpp>
#include <set>
#include <utility>

namespace ostrakon::plan {

namespace {

/// Returns the deferred phases of backward, or the others.
std::vector<int> deferred(const UnitDescription& unit, bool those_that_are) {
  const auto phases = static_cast<int>(unit.backward.size());
  std::vector<int> found;
  for (int p = 0; p < phases; ++p)
    if ((p >= phases - unit.deferral.phases) == those_that_are) found.push_back(p);
  return found;
}

}  // namespace

ComputePass::ComputePass(Builder& builder, const Tasks& tasks, const GatherPass& gathers,
                         ReductionPass& reductions)
    : builder_(builder), gathers_(gathers), reductions_(reductions) {
  std::set<int> known;
  for (const Task& task : tasks)
    if (task.computes() && known.insert(task.micro_batch).second)
      micro_batches_.push_back(task.micro_batch);
}

void ComputePass::on(const Task& task, Tape& tape) {
  switch (task.work) {
    case Work::forward:
      return forward(task, tape);
    case Work::backward:
      return backward(task, tape);
    case Work::gradients:
      return backward_phases(task, tape, deferred(builder_.unit(task.unit), true));
    case Work::loss:
      return add_loss(task, tape);
    default:
      return;
  }
}

/// Provides the batch before a micro-batch's first task. The next batch is read while this one is
/// computed, as soon as there is room for it.
void ComputePass::load_batch(const Task& task, Tape& tape) {
  if (tape.batch < 0 || std::exchange(tape.is_loaded, true)) return;
  if (loaded_ == 0) load();
  builder_.copy_on(Stream::compute, -1, batch_on_host_, tape.batch).micro_batch = task.micro_batch;
  if (loaded_ < micro_batches_.size()) load();
}

void ComputePass::load() {
  batch_on_host_ = builder_.make_named("batch on host", Category::activations,
                                       builder_.model().batch_bytes, Space::host);
  Action& action = builder_.emit(Kind::load, -1, micro_batches_[loaded_++]);
  builder_.use(action, Role::host_batch, batch_on_host_, Access::write);
}

void ComputePass::read_batch(Action& action, const Tape& tape) {
  if (builder_.unit(action.unit).reads_batch)
    builder_.use(action, Role::batch, tape.batch, Access::read);
}

void ComputePass::read_parameters(Action& action) {
  for (const ParameterUse& use : builder_.parameter_uses(action.unit))
    if (action.kind == Kind::forward || use.backward_reads)
      builder_.use(action, use.parameters, gathers_.parameters(use.unit), Access::read);
}

/// Returns the gradients that a backward writes, in the order of its unit's parameters: makes
/// buffers for them, or finds what they are added to.
std::vector<ComputePass::WrittenGradients> ComputePass::open_gradients(const Task& task,
                                                                       Tape& tape) {
  std::vector<WrittenGradients> written;
  for (const ParameterUse& use : builder_.parameter_uses(task.unit)) {
    if (!use.has_gradients) continue;
    int& gradients = tape.units[use.unit].parameter_gradients[use.addend];
    AddsTo added_to = gradients >= 0 ? AddsTo::tied_gradients : AddsTo::nothing;
    if (gradients < 0) {
      gradients = reductions_.take_partial_sum(use.unit, use.addend, task.micro_batch);
      if (gradients >= 0) added_to = AddsTo::partial_sum;
    }
    const Layouts& layouts = builder_.state(use.unit).layouts;
    const Layout layout = layouts.gradient.over(layouts.gathered.divided).in(Space::device);
    if (gradients < 0) gradients = builder_.make_gradients("gradients", use.unit, layout);
    written.push_back({use.gradients, gradients, added_to});
  }
  return written;
}

void ComputePass::forward(const Task& task, Tape& tape) {
  const int u = task.unit;
  const UnitDescription& unit = builder_.unit(u);
  // The first unit's gathers are in flight while the batch is read.
  load_batch(task, tape);
  tape.units[u].output =
      builder_.make_buffer("output", u, Category::activations, unit.output_bytes);
  tape.units[u].saved = builder_.make_buffer("saved", u, Category::activations, unit.saved_bytes);
  const auto use = [&](Action& action, Workspace workspace, PhasePosition position) {
    read_batch(action, tape);
    read_parameters(action);
    builder_.use(action, Role::input, tape.input(u), Access::read);
    if (position.writes_output)
      builder_.use(action, Role::output, tape.units[u].output,
                   position.output_begun ? Access::read_write : Access::write);
    builder_.use(action, Role::saved, tape.units[u].saved, position.filling());
    builder_.use(action, Role::workspace, workspace.buffer, workspace.access);
    // What is computed again is not counted again.
    if (counted(unit) > 0 && trains(builder_.plan().purpose) && !builder_.plan().is_again(action))
      builder_.use(action, Role::sums, builder_.plan().sums, Access::read_write);
  };
  append_phases(builder_, task, Kind::forward, unit.forward, all_of(unit.forward),
                "forward workspace", std::cref(use));
  if (builder_.plan().purpose == Purpose::decode && u == builder_.units() - 1)
    copy_logits_to_host(tape.units[u].output);
}

/// Copies the logits of decoding to where the caller reads them.
void ComputePass::copy_logits_to_host(int logits) {
  const int on_host = builder_.make_named("logits on host", Category::activations,
                                          builder_.buffer(logits).bytes, Space::host);
  builder_.make_persistent(on_host);
  builder_.copy_on(Stream::compute, -1, logits, on_host);
}

void ComputePass::backward(const Task& task, Tape& tape) {
  const int u = task.unit;
  const UnitDescription& unit = builder_.unit(u);
  // The last unit has had no forward: its backward computes the loss, too.
  const bool is_last = computes_loss(builder_.model(), u);
  if (is_last) {
    load_batch(task, tape);
    tape.units[u].output =
        builder_.make_buffer("losses", u, Category::activations, unit.output_bytes);
    tape.units[u].saved = builder_.make_buffer("saved", u, Category::activations, unit.saved_bytes);
    tape.gradient(u) = builder_.make_named("gradient", Category::activations,
                                           builder_.model().gradient_bytes, Space::device);
  }
  tape.units[u].deferred =
      builder_.make_buffer("deferred", u, Category::activations, unit.deferral.bytes);
  backward_phases(task, tape, deferred(unit, false));
}

/// Writes the given phases of a backward. Deferred phases compute all gradients of parameters, and
/// nothing else.
void ComputePass::backward_phases(const Task& task, Tape& tape, const std::vector<int>& computed) {
  const int u = task.unit;
  const UnitDescription& unit = builder_.unit(u);
  const bool is_last = computes_loss(builder_.model(), u);
  const bool is_deferred = task.work == Work::gradients;
  const bool writes_gradients = is_deferred || unit.deferral.phases == 0;
  std::vector<WrittenGradients> written;
  const auto use = [&](Action& action, Workspace workspace, PhasePosition position) {
    // open_gradients makes buffers but no action, so that `action` stays where it is.
    if (position.first && writes_gradients) written = open_gradients(task, tape);
    const Access of_last = is_last && !is_deferred ? position.filling() : Access::read_write;
    if (!written.empty()) action.adds_to = written.front().added_to;
    if (position.first && action.adds_to == AddsTo::partial_sum)
      action.work +=
          row_work(static_cast<double>(builder_.buffer(written.front().buffer).bytes), 0.0);
    read_batch(action, tape);
    if (!is_deferred) read_parameters(action);
    builder_.use(action, Role::input, tape.input(u), Access::read);
    if (is_last) builder_.use(action, Role::output, tape.units[u].output, position.filling());
    builder_.use(action, Role::saved, tape.units[u].saved, of_last);
    builder_.use(action, Role::deferred, tape.units[u].deferred,
                 is_deferred ? Access::read_write : position.filling());
    builder_.use(action, Role::workspace, workspace.buffer, workspace.access);
    if (!is_deferred) builder_.use(action, Role::gradient, tape.gradient(u), of_last);
    for (const WrittenGradients& one : written)
      builder_.use(action, one.role, one.buffer,
                   one.added_to != AddsTo::nothing ? Access::read_write : position.filling());
  };
  append_phases(builder_, task, Kind::backward, unit.backward, computed, "backward workspace",
                std::cref(use));
}

void ComputePass::add_loss(const Task& task, const Tape& tape) {
  Action& action = builder_.emit(Kind::loss, task.unit, task.micro_batch);
  builder_.use(action, Role::output, tape.units[task.unit].output, Access::read);
  builder_.use(action, Role::sums, builder_.plan().sums, Access::read_write);
}

}  // namespace ostrakon::plan
