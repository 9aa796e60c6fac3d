// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <numeric>
#include <ostrakon/base/error.hpp>
#include <ostrakon/plan/gathers.hpp>
#include <ostrakon/plan/reduction_tree.hpp>
#include <ostrakon/plan/step_plan.hpp>
#include <ostrakon/plan/waits.hpp>
#include <stdexcept>

namespace ostrakon::plan {
namespace {

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

std::vector<int> leaf_sequence(std::int64_t count, LeafOrder order) {
  std::vector<int> sequence(static_cast<std::size_t>(count));
  std::iota(sequence.begin(), sequence.end(), 0);
  if (order == LeafOrder::descending) std::reverse(sequence.begin(), sequence.end());
  if (order == LeafOrder::shuffled) {
    // Fisher-Yates on a fixed linear congruential sequence: the same on every rank.
    std::uint64_t state = 0x9e3779b97f4a7c15ull;
    for (std::size_t i = sequence.size(); i > 1; --i) {
      state = state * 6364136223846793005ull + 1442695040888963407ull;
      std::swap(sequence[i - 1], sequence[(state >> 33) % i]);
    }
  }
  return sequence;
}

/// Writes one plan. Each method emits the actions for one thing; buffers are made where they are
/// first written and end with their last use, which is on the compute stream.
class Writer {
 public:
  Writer(const ModelDescription& model, int ranks, const Policy& policy, Purpose purpose)
      : model_(model), policy_(policy), units_(static_cast<int>(model.units.size())) {
    plan_.purpose = purpose;
    plan_.element_bytes = model.element_bytes;
    plan_.master_bytes = model.master_bytes;
    plan_.ranks = ranks;
    plan_.group_ranks = policy.shard_group > 0 ? policy.shard_group : ranks;
    plan_.micro_batches = policy.leaves / ranks;
    const Sharding sharding = policy.sharding;
    plan_.optimized = sharding == Sharding::none                             ? Part::whole
                      : policy.shard_optimizer_over == OptimizerGroup::world ? Part::rank
                                                                             : Part::group;
    // Beside whole copies to compute with, masters are needed only where they are updated.
    plan_.stored = sharding == Sharding::full ? Part::group
                   : converts()               ? plan_.optimized
                                              : Part::whole;
    plan_.accumulation = policy.accumulation;
    if (policy.accumulation == Accumulation::automatic) {
      const bool shards_gradients = sharding == Sharding::gradients || sharding == Sharding::full;
      plan_.accumulation = shards_gradients ? Accumulation::shard_each : Accumulation::reduce_last;
    }
    for (const UnitDescription& unit : model.units) {
      plan_.unit_names.push_back(unit.name);
      plan_.parameter_elements.push_back(unit.parameter_elements);
      plan_.padded_elements.push_back(round_up(unit.parameter_elements, ranks * shard_alignment));
    }
  }

  StepPlan write() {
    make_persistent_buffers();
    make_schedule();
    switch (plan_.purpose) {
      case Purpose::train:
        write_training_step();
        break;
      case Purpose::evaluate:
        write_evaluation();
        break;
      case Purpose::export_parameters:
        write_export();
        break;
      case Purpose::decode:
        write_decoding();
        break;
    }
    find_lifetimes();
    find_waits(plan_);
    return std::move(plan_);
  }

 private:
  // ---- buffers

  int make_buffer(std::string name, Category category, std::int64_t bytes,
                  bool persistent = false) {
    Buffer buffer;
    buffer.name = std::move(name);
    buffer.category = category;
    buffer.bytes = bytes;
    buffer.persistent = persistent;
    plan_.buffers.push_back(std::move(buffer));
    return static_cast<int>(plan_.buffers.size()) - 1;
  }

  /// A transient buffer, or -1 where nothing would be in it.
  int make_transient(const std::string& what, int unit, Category category, std::int64_t bytes) {
    return bytes > 0 ? make_buffer(unit_name(unit) + " " + what, category, bytes) : -1;
  }

  int make_on_host(const std::string& name, Category category, std::int64_t bytes) {
    const int buffer = make_buffer(name, category, bytes);
    plan_.buffers[buffer].space = Space::host;
    return buffer;
  }

  const std::string& unit_name(int unit) const { return plan_.unit_names[unit]; }
  const UnitDescription& unit(int index) const { return model_.units[index]; }
  /// Of parameters as they are computed with.
  std::int64_t full_bytes(int unit) const {
    return plan_.padded_elements[unit] * model_.element_bytes;
  }
  /// Of masters and gradients.
  std::int64_t bytes(int unit, Part part) const {
    return plan_.elements(unit, part) * model_.master_bytes;
  }
  bool converts() const { return model_.element_bytes != model_.master_bytes; }
  bool has_working_copies() const {
    return converts() && policy_.sharding != Sharding::full && plan_.purpose != Purpose::decode;
  }

  void make_persistent_buffers() {
    const bool training = plan_.purpose != Purpose::decode;
    for (int u = 0; u < units_; ++u) {
      const std::int64_t moment_bytes = plan_.elements(u, plan_.optimized) *
                                        bytes_of(policy_.moments.number) *
                                        (model_.master_bytes / bytes_of(Number::fp32));
      plan_.parameters.push_back(make_buffer(unit_name(u) + " parameters", Category::parameters,
                                             bytes(u, plan_.stored), true));
      if (has_working_copies())
        plan_.working.push_back(
            make_buffer(unit_name(u) + " working copy", Category::parameters, full_bytes(u), true));
      if (training && policy_.moments.count > 0)
        plan_.first_moments.push_back(
            make_buffer(unit_name(u) + " first moment", Category::optimizer, moment_bytes, true));
      if (training && policy_.moments.count > 1)
        plan_.second_moments.push_back(
            make_buffer(unit_name(u) + " second moment", Category::optimizer, moment_bytes, true));
    }
    if (training) plan_.sums = make_buffer("sums", Category::other, model_.sums_bytes, true);
    gathered_.assign(units_, -1);
    kept_.assign(units_, -1);
    gradient_.assign(units_, -1);
    partial_.resize(units_);
    if (plan_.purpose == Purpose::train) plan_.gradients.assign(units_, -1);
  }

  // ---- actions

  Action& emit(Kind kind, Stream stream, int unit, int micro_batch) {
    Action action;
    action.kind = kind;
    action.stream = stream;
    action.unit = unit;
    action.micro_batch = micro_batch;
    plan_.actions.push_back(std::move(action));
    return plan_.actions.back();
  }

  static void use(Action& action, Role role, int buffer, Access access) {
    if (buffer >= 0) action.uses.push_back({role, buffer, access});
  }

  /// Ends buffers: compute waits here for whatever uses them on other streams.
  void release(int unit, const std::vector<int>& buffers) {
    Action& action = emit(Kind::release, Stream::compute, unit, -1);
    // As a write, so that it comes after those who only read.
    for (int buffer : buffers) use(action, Role::ended, buffer, Access::read_write);
  }

  void load(int micro_batch, int batch) {
    // What is generated comes with the call.
    const int on_host =
        plan_.purpose == Purpose::decode
            ? -1
            : make_on_host("batch on host", Category::activations, model_.batch_bytes);
    Action& action = emit(Kind::load, Stream::compute, -1, micro_batch);
    use(action, Role::host_batch, on_host, Access::write);
    use(action, Role::batch, batch, Access::write);
  }

  void add_loss(int losses, int micro_batch) {
    Action& action = emit(Kind::loss, Stream::compute, units_ - 1, micro_batch);
    use(action, Role::output, losses, Access::read);
    use(action, Role::sums, plan_.sums, Access::read_write);
  }

  void clear_sums() {
    Action& action = emit(Kind::begin, Stream::compute, -1, -1);
    use(action, Role::sums, plan_.sums, Access::write);
  }

  void sum_sums() {
    // One number more: how many ranks have failed.
    const std::int64_t more = sizeof(std::int64_t);
    const int on_host = make_on_host("sums on host", Category::other, model_.sums_bytes + more);
    Action& action = emit(Kind::clip, Stream::compute, -1, -1);
    use(action, Role::sums, plan_.sums, Access::read_write);
    use(action, Role::host_sums, on_host, Access::write);
    // Where something is not finite, it is looked for in each unit's gradient.
    for (int gradients : plan_.gradients)
      use(action, Role::gradient_shard, gradients, Access::read);
  }

  // ---- parameters

  /// A group of one has nothing to gather, but may have to convert.
  bool gathers() const {
    return policy_.sharding == Sharding::full && plan_.purpose != Purpose::decode &&
           (plan_.group_ranks > 1 || converts());
  }

  /// Everything that will be computed, and with which gathered parameters.
  std::vector<Visit> list_visits() const {
    std::vector<Visit> visits;
    const auto visit = [&](int u, int micro_batch, bool forward, bool reads_own) {
      Visit one;
      one.unit = u;
      one.micro_batch = micro_batch;
      one.forward = forward;
      if (reads_own) one.needs[0] = u;
      one.needs[1] = unit(u).lender;
      visits.push_back(one);
    };
    if (plan_.purpose == Purpose::evaluate)
      for (int micro_batch : leaves())
        for (int u = 0; u < units_; ++u) visit(u, micro_batch, true, true);
    if (plan_.purpose == Purpose::train)
      for (int micro_batch : leaves()) {
        for (int u = 0; u + 1 < units_; ++u) visit(u, micro_batch, true, true);
        for (int u = units_ - 1; u >= 0; --u)
          visit(u, micro_batch, false, unit(u).backward_reads_parameters);
      }
    return visits;
  }

  std::vector<int> leaves() const { return leaf_sequence(plan_.micro_batches, policy_.leaf_order); }

  std::vector<int> find_units(const Prefetch& prefetch, const char* key) const {
    std::vector<int> found;
    for (const std::string& name : prefetch.units) {
      const auto at = std::find(plan_.unit_names.begin(), plan_.unit_names.end(), name);
      require(at != plan_.unit_names.end(), "parallel.units: ", key, " ", name,
              ": the model has no such unit; its units are ", plan_.unit_names.front(), ", ",
              units_ > 2 ? plan_.unit_names[1] + ", ... " : "", plan_.unit_names.back());
      found.push_back(static_cast<int>(at - plan_.unit_names.begin()));
    }
    return found;
  }

  GatherRules rules_of(int u) const {
    GatherRules rules;
    rules.bytes = full_bytes(u);
    rules.reshard = policy_.reshard_after_forward;
    rules.forward_prefetch = policy_.forward_prefetch;
    rules.backward_prefetch = policy_.backward_prefetch;
    for (const UnitRule& rule : policy_.units) {
      if (!matches(rule.pattern, unit_name(u))) continue;
      if (rule.reshard_after_forward) rules.reshard = *rule.reshard_after_forward;
      if (rule.forward_prefetch) rules.forward_prefetch = *rule.forward_prefetch;
      if (rule.backward_prefetch) rules.backward_prefetch = *rule.backward_prefetch;
    }
    rules.forward_list = find_units(rules.forward_prefetch, "forward_prefetch");
    rules.backward_list = find_units(rules.backward_prefetch, "backward_prefetch");
    Reshard& reshard = rules.reshard;
    if (reshard.kind == Reshard::partly) {
      // Parts as small as shards are those that a rank has anyway.
      if (reshard.ranks >= plan_.group_ranks) reshard.kind = Reshard::always;
      require(reshard.kind == Reshard::always || plan_.group_ranks % reshard.ranks == 0,
              "reshard_after_forward = ", reshard.ranks, " does not divide the ", plan_.group_ranks,
              " ranks of a shard group");
    }
    return rules;
  }

  void make_schedule() {
    std::vector<GatherRules> rules;
    for (int u = 0; u < units_; ++u) rules.push_back(rules_of(u));
    for (const UnitRule& rule : policy_.units)
      require(std::any_of(plan_.unit_names.begin(), plan_.unit_names.end(),
                          [&](const std::string& name) { return matches(rule.pattern, name); }),
              "parallel.units: ", rule.pattern, " matches none of the model's units, which are ",
              plan_.unit_names.front(), ", ", units_ > 2 ? plan_.unit_names[1] + ", ... " : "",
              plan_.unit_names.back());
    kept_parts_.clear();
    for (const GatherRules& one : rules) kept_parts_.push_back(one.reshard.ranks);
    if (gathers())
      schedule_ = std::make_unique<GatherSchedule>(list_visits(), std::move(rules),
                                                   policy_.in_flight_gathers, plan_.unit_names);
  }

  void gather(int u) {
    gathered_[u] = make_transient("gathered", u, Category::gathered, full_bytes(u));
    Action& action = emit(Kind::gather, Stream::gather, u, -1);
    action.elements = plan_.padded_elements[u];
    action.element_bytes = model_.element_bytes;
    action.converts = converts() && kept_[u] < 0;
    action.group = kept_[u] < 0 ? Group::shard : Group::kept;
    action.group_ranks = kept_[u] < 0 ? plan_.group_ranks : kept_parts_[u];
    use(action, Role::shard, kept_[u] < 0 ? plan_.parameters[u] : kept_[u], Access::read);
    use(action, Role::parameters, gathered_[u], Access::write);
  }

  /// Gathers what the next visit needs, and what is prefetched while it computes.
  void begin_visit() {
    if (!schedule_) return;
    for (int u : schedule_->begin(visit_)) gather(u);
  }

  /// Where the visit's compute finds the parameters of `unit`.
  int parameters(int unit) const {
    if (gathered_[unit] >= 0) return gathered_[unit];
    return has_working_copies() ? plan_.working[unit] : plan_.parameters[unit];
  }

  /// Lets go, after the visit's compute, of what it needed: its own parameters and a lender's.
  void end_visit(int own, int lender) {
    if (schedule_)
      for (int u : {own, lender})
        if (u >= 0) end_visit_of(u);
    ++visit_;
  }

  void end_visit_of(int u) {
    const GatherSchedule::End end = schedule_->end(visit_, u);
    if (end == GatherSchedule::End::stay) return;
    std::vector<int> ended = {gathered_[u]};
    // It came from a part that was kept, which has served.
    if (kept_[u] >= 0) ended.push_back(kept_[u]);
    kept_[u] = -1;
    if (end == GatherSchedule::End::keep_part) {
      const std::int64_t elements = plan_.padded_elements[u] / kept_parts_[u];
      kept_[u] =
          make_transient("kept part", u, Category::gathered, elements * model_.element_bytes);
      Action& keep = emit(Kind::keep, Stream::compute, u, -1);
      keep.group = Group::kept;
      keep.group_ranks = kept_parts_[u];
      keep.elements = elements;
      use(keep, Role::parameters, gathered_[u], Access::read);
      use(keep, Role::shard, kept_[u], Access::write);
    }
    release(u, ended);
    gathered_[u] = -1;
  }

  // ---- compute

  /// What one micro-batch leaves behind from forward for backward.
  struct Tape {
    int batch = -1;
    std::vector<int> output;
    std::vector<int> saved;
  };

  Tape make_tape() {
    Tape tape;
    tape.batch = make_buffer("batch", Category::activations, model_.batch_bytes);
    return tape;
  }

  void forward(int u, int micro_batch, Tape& tape) {
    begin_visit();
    // What is gathered for the first unit is on its way while the batch is read.
    if (u == 0) load(micro_batch, tape.batch);
    const int lender = unit(u).lender;
    tape.output.push_back(make_transient("output", u, Category::activations, unit(u).output_bytes));
    tape.saved.push_back(make_transient("saved", u, Category::activations, unit(u).saved_bytes));
    const int workspace = make_transient("forward workspace", u, Category::workspace,
                                         unit(u).forward_workspace_bytes);
    Action& action = emit(Kind::forward, Stream::compute, u, micro_batch);
    action.flops = unit(u).forward_flops;
    use(action, Role::batch, tape.batch, Access::read);
    use(action, Role::parameters, parameters(u), Access::read);
    if (lender >= 0) use(action, Role::lender_parameters, parameters(lender), Access::read);
    if (u > 0) use(action, Role::input, tape.output[u - 1], Access::read);
    use(action, Role::output, tape.output[u], Access::write);
    use(action, Role::saved, tape.saved[u], Access::write);
    use(action, Role::workspace, workspace, Access::write);
    end_visit(u, lender);
  }

  /// Whether what forward saves ends with it, to be computed again for backward.
  bool is_checkpointed(int u) const {
    const int every = policy_.activation_checkpointing.every;
    // The last unit has no forward of its own.
    if (every == 0 || u + 1 == units_ || !unit(u).recomputes) return false;
    int before = 0;
    for (int v = 0; v < u; ++v) before += unit(v).recomputes;
    return before % every == 0;
  }

  void recompute(int u, int micro_batch, Tape& tape) {
    tape.saved[u] = make_transient("saved", u, Category::activations, unit(u).saved_bytes);
    const int workspace = make_transient("forward workspace", u, Category::workspace,
                                         unit(u).forward_workspace_bytes);
    Action& action = emit(Kind::recompute, Stream::compute, u, micro_batch);
    action.flops = unit(u).recompute_flops;
    use(action, Role::batch, tape.batch, Access::read);
    use(action, Role::parameters, parameters(u), Access::read);
    if (u > 0) use(action, Role::input, tape.output[u - 1], Access::read);
    use(action, Role::saved, tape.saved[u], Access::write);
    use(action, Role::workspace, workspace, Access::write);
  }

  /// Backward of unit `u`. The last unit has had no forward: its backward computes the loss too.
  void backward(int u, int micro_batch, Tape& tape, int& gradient) {
    begin_visit();
    const bool last = u == units_ - 1;
    const UnitDescription& description = unit(u);
    const bool reads_own = description.backward_reads_parameters;
    const int lender = description.lender;
    if (last) {
      tape.output.push_back(
          make_transient("losses", u, Category::activations, description.output_bytes));
      tape.saved.push_back(
          make_transient("saved", u, Category::activations, description.saved_bytes));
      gradient = make_buffer("gradient", Category::activations, model_.gradient_bytes);
    }
    if (is_checkpointed(u)) recompute(u, micro_batch, tape);
    const int workspace = make_transient("backward workspace", u, Category::workspace,
                                         description.backward_workspace_bytes);
    const bool opened = gradient_[u] >= 0;
    if (!opened)
      gradient_[u] = make_transient("gradients", u, Category::gradients, bytes(u, Part::whole));
    if (lender >= 0)
      gradient_[lender] =
          make_transient("gradients", lender, Category::gradients, bytes(lender, Part::whole));

    Action& action = emit(Kind::backward, Stream::compute, u, micro_batch);
    action.flops = description.backward_flops;
    action.gradients_opened = opened;
    use(action, Role::batch, tape.batch, Access::read);
    if (reads_own) use(action, Role::parameters, parameters(u), Access::read);
    if (lender >= 0) use(action, Role::lender_parameters, parameters(lender), Access::read);
    if (u > 0) use(action, Role::input, tape.output[u - 1], Access::read);
    if (last) use(action, Role::output, tape.output[u], Access::write);
    use(action, Role::saved, tape.saved[u], last ? Access::write : Access::read_write);
    use(action, Role::workspace, workspace, Access::write);
    use(action, Role::gradient, gradient, last ? Access::write : Access::read_write);
    use(action, Role::parameter_gradients, gradient_[u],
        opened ? Access::read_write : Access::write);
    if (lender >= 0) use(action, Role::lender_gradients, gradient_[lender], Access::write);
    end_visit(reads_own ? u : -1, lender);
  }

  // ---- gradients

  /// The part of an array that a rank of `group` has when the whole of it is divided over the
  /// group.
  static Part whole_of(Group group) { return group == Group::shard ? Part::whole : Part::group; }
  static Part part_of(Group group) { return group == Group::shard ? Part::group : Part::rank; }
  int ranks_of(Group group) const {
    return group == Group::shard ? plan_.group_ranks : plan_.replicas();
  }

  /// One micro-batch's gradients of a unit on their way through sums over micro-batches and ranks.
  struct Reduction {
    int unit = -1;
    int micro_batch = -1;
    int sum = -1;                     ///< the buffer that holds what is summed so far; -1: it waits
                                      ///< in another sum for later micro-batches
    Stream stream = Stream::compute;  ///< reduce, once there is something to communicate
    std::vector<int> ended;           ///< buffers that end when compute has waited for the rest
  };

  /// Sums gradients over the ranks of `group`; this rank's part is left.
  void reduce_scatter(Reduction& reduction, Group group) {
    if (reduction.sum < 0 || ranks_of(group) == 1) return;
    const int u = reduction.unit;
    if (reduction.stream == Stream::compute)
      finish_reductions(static_cast<std::size_t>(std::max(policy_.in_flight_reductions - 1, 0)));
    reduction.stream = Stream::reduce;
    // Between nodes sums go on in full precision.
    const bool packs = group == Group::shard && policy_.reduce != Number::fp32;
    const std::int64_t elements = plan_.elements(u, whole_of(group));
    const std::int64_t wire_bytes = packs ? bytes_of(policy_.reduce) : model_.master_bytes;
    const int packed =
        packs ? make_transient("packed", u, Category::staging, elements * wire_bytes) : -1;
    const int staging = make_transient("staging", u, Category::staging, elements * wire_bytes);
    const int part =
        make_transient("gradient shard", u, Category::gradients, bytes(u, part_of(group)));
    Action& action = emit(Kind::reduce_scatter, Stream::reduce, u, -1);
    action.group = group;
    action.group_ranks = ranks_of(group);
    action.elements = elements;
    action.element_bytes = wire_bytes;
    use(action, Role::parameter_gradients, reduction.sum, Access::read);
    use(action, Role::packed, packed, Access::write);
    use(action, Role::staging, staging, Access::write);
    use(action, Role::gradient_shard, part, Access::write);
    for (int ended : {reduction.sum, packed, staging})
      if (ended >= 0) reduction.ended.push_back(ended);
    reduction.sum = part;
  }

  /// Adds the sum so far to the unit's tree over micro-batches: the root is left once it is
  /// complete.
  void fold(Reduction& reduction, Part part) {
    if (reduction.sum < 0) return;
    auto& done = partial_[reduction.unit];
    TreeNode node{reduction.micro_batch, 1};
    while (node.leaves < plan_.micro_batches) {
      const auto [parent, sibling] = parent_and_sibling(node, plan_.micro_batches);
      const auto other = done.find(sibling);
      if (other == done.end()) {
        done[node] = reduction.sum;
        reduction.sum = -1;
        return;
      }
      // The sum of two floats has the same bits either way round: add to the one that is older.
      Action& action = emit(Kind::accumulate, reduction.stream, reduction.unit, -1);
      action.elements = plan_.elements(reduction.unit, part);
      use(action, Role::source, reduction.sum, Access::read);
      use(action, Role::parameter_gradients, other->second, Access::read_write);
      if (reduction.stream != Stream::compute) reduction.ended.push_back(reduction.sum);
      reduction.sum = other->second;
      done.erase(other);
      node = parent;
    }
  }

  /// What happens to a unit's gradients when one micro-batch's backward has written them.
  void gradients_ready(int u, int micro_batch) {
    Reduction reduction;
    reduction.unit = u;
    reduction.micro_batch = micro_batch;
    reduction.sum = gradient_[u];
    gradient_[u] = -1;
    if (plan_.accumulation == Accumulation::reduce_last) fold(reduction, Part::whole);
    reduce_scatter(reduction, Group::shard);
    if (plan_.accumulation == Accumulation::shard_each) fold(reduction, Part::group);
    reduce_scatter(reduction, Group::replicate);
    if (plan_.accumulation == Accumulation::reduce_each) fold(reduction, Part::rank);
    if (reduction.stream == Stream::compute) {
      finish(reduction);
    } else {
      reductions_.push_back(std::move(reduction));
      if (policy_.in_flight_reductions == 0) finish_reductions(0);
    }
  }

  /// Waits for reductions, the oldest first, until `most` are under way.
  void finish_reductions(std::size_t most) {
    while (reductions_.size() > most) {
      finish(reductions_.front());
      reductions_.pop_front();
    }
  }

  void finish(const Reduction& reduction) {
    const int u = reduction.unit;
    if (reduction.sum >= 0) {
      plan_.gradients[u] = reduction.sum;
      Action& norm = emit(Kind::norm, Stream::compute, u, -1);
      norm.elements = plan_.elements(u, Part::rank);
      use(norm, Role::gradient_shard, reduction.sum, Access::read);
      use(norm, Role::sums, plan_.sums, Access::read_write);
    }
    if (!reduction.ended.empty()) release(u, reduction.ended);
  }

  // ---- update

  /// Gathers summed gradients over `group`; returns the buffer with the whole and adds to `ended`
  /// what it was gathered from.
  int gather_gradients(int u, int gradients, Group group, std::vector<int>& ended) {
    if (ranks_of(group) == 1) return gradients;
    const int whole =
        make_transient("gradients", u, Category::gradients, bytes(u, whole_of(group)));
    Action& action = emit(Kind::gather_gradients, Stream::gather, u, -1);
    action.group = group;
    action.group_ranks = ranks_of(group);
    action.element_bytes = model_.master_bytes;
    action.elements = plan_.elements(u, whole_of(group));
    use(action, Role::gradient_shard, gradients, Access::read);
    use(action, Role::parameter_gradients, whole, Access::write);
    ended.push_back(gradients);
    return whole;
  }

  /// Whoever updates less than it has gets the rest from others: of working copies, or else
  /// masters.
  void gather_updates(int u, Group group) {
    if (ranks_of(group) == 1) return;
    Action& action = emit(Kind::gather_updates, Stream::gather, u, -1);
    action.group = group;
    action.group_ranks = ranks_of(group);
    action.elements = plan_.elements(u, whole_of(group));
    const bool of_working = has_working_copies();
    action.element_bytes = of_working ? model_.element_bytes : model_.master_bytes;
    use(action, Role::shard, of_working ? plan_.working[u] : plan_.parameters[u],
        Access::read_write);
  }

  void optimize() {
    struct Gathered {
      int gradients = -1;
      std::vector<int> ended;
    };
    std::vector<Gathered> gathered;
    const auto gather_next = [&] {
      const int u = static_cast<int>(gathered.size());
      Gathered next;
      next.gradients = plan_.gradients[u];
      if (plan_.optimized != Part::rank)
        next.gradients = gather_gradients(u, next.gradients, Group::replicate, next.ended);
      if (plan_.optimized == Part::whole)
        next.gradients = gather_gradients(u, next.gradients, Group::shard, next.ended);
      gathered.push_back(std::move(next));
    };
    for (int u = 0; u < units_; ++u) {
      const int ahead = std::min(u + policy_.forward_prefetch.depth, units_ - 1);
      while (static_cast<int>(gathered.size()) <= ahead) gather_next();
      Action& action = emit(Kind::optimize, Stream::compute, u, -1);
      action.elements = plan_.elements(u, plan_.optimized);
      use(action, Role::gradient_shard, gathered[u].gradients, Access::read);
      use(action, Role::shard, plan_.parameters[u], Access::read_write);
      if (has_working_copies()) use(action, Role::parameters, plan_.working[u], Access::read_write);
      if (!plan_.first_moments.empty())
        use(action, Role::first_moment, plan_.first_moments[u], Access::read_write);
      if (!plan_.second_moments.empty())
        use(action, Role::second_moment, plan_.second_moments[u], Access::read_write);
      if (!gathered[u].ended.empty()) release(u, gathered[u].ended);
      if (plan_.optimized == Part::rank) gather_updates(u, Group::replicate);
      if (plan_.optimized != Part::whole && policy_.sharding != Sharding::full)
        gather_updates(u, Group::shard);
    }
  }

  // ---- programs

  void write_training_step() {
    clear_sums();
    for (int micro_batch : leaves()) {
      Tape tape = make_tape();
      const int last = units_ - 1;
      for (int u = 0; u < last; ++u) forward(u, micro_batch, tape);
      if (last == 0) load(micro_batch, tape.batch);
      int gradient = -1;
      for (int u = last; u >= 0; --u) {
        backward(u, micro_batch, tape, gradient);
        if (u == last) add_loss(tape.output[last], micro_batch);
        gradients_ready(u, micro_batch);
      }
    }
    finish_reductions(0);
    sum_sums();
    optimize();
  }

  void write_evaluation() {
    clear_sums();
    for (int micro_batch : leaves()) {
      Tape tape = make_tape();
      for (int u = 0; u < units_; ++u) forward(u, micro_batch, tape);
      add_loss(tape.output.back(), micro_batch);
    }
    sum_sums();
  }

  /// Gathers masters over `group`; returns the buffer with the whole of that.
  int gather_masters(int u, int masters, Group group, std::vector<int>& ended) {
    if (ranks_of(group) == 1) return masters;
    const int whole =
        make_transient("gathered masters", u, Category::gathered, bytes(u, whole_of(group)));
    Action& action = emit(Kind::gather, Stream::gather, u, -1);
    action.group = group;
    action.group_ranks = ranks_of(group);
    action.elements = plan_.elements(u, whole_of(group));
    action.element_bytes = model_.master_bytes;
    use(action, Role::shard, masters, Access::read);
    use(action, Role::parameters, whole, Access::write);
    ended.push_back(whole);
    return whole;
  }

  void write_export() {
    for (int u = 0; u < units_; ++u) {
      int masters = plan_.parameters[u];
      std::vector<int> ended;
      if (plan_.stored == Part::rank) masters = gather_masters(u, masters, Group::replicate, ended);
      if (plan_.stored != Part::whole) masters = gather_masters(u, masters, Group::shard, ended);
      Action& visit = emit(Kind::visit, Stream::compute, u, -1);
      use(visit, Role::parameters, masters, Access::read);
      if (!ended.empty()) release(u, ended);
    }
  }

  void write_decoding() {
    Tape tape = make_tape();
    for (int u = 0; u < units_; ++u) forward(u, 0, tape);
    // Later rows read what earlier rows left: nothing of it may be reused between calls.
    for (int u = 0; u < units_ - 1; ++u)
      for (int buffer : {tape.output[u], tape.saved[u]})
        if (buffer >= 0) plan_.buffers[buffer].persistent = true;
    plan_.buffers[tape.batch].persistent = true;
  }

  void find_lifetimes() {
    for (int a = 0; a < static_cast<int>(plan_.actions.size()); ++a)
      for (const Use& used : plan_.actions[a].uses) {
        Buffer& buffer = plan_.buffers[used.buffer];
        if (buffer.first < 0) buffer.first = a;
        buffer.last = a;
      }
    for (const Buffer& buffer : plan_.buffers)
      if (!buffer.persistent && plan_.actions[buffer.last].stream != Stream::compute)
        throw std::logic_error("'" + buffer.name + "' does not end on the compute stream");
  }

  const ModelDescription& model_;
  const Policy& policy_;
  const int units_;
  StepPlan plan_;

  std::unique_ptr<GatherSchedule> schedule_;  // where parameters are gathered at all
  int visit_ = 0;                             // that comes up or computes
  std::vector<int> gathered_;                 // of each unit, or -1 while it is released
  std::vector<int> kept_;                     // part kept after forward, or -1
  std::vector<int> kept_parts_;               // of each unit: in how many parts it is kept
  std::vector<int> gradient_;                 // that the running micro-batch writes, or -1
  std::vector<std::map<TreeNode, int>> partial_;
  std::deque<Reduction> reductions_;  // under way, the oldest first
};

}  // namespace

StepPlan build_step_plan(const ModelDescription& model, int ranks, const Policy& policy,
                         Purpose purpose) {
  require(policy.leaves >= 1 && policy.leaves % ranks == 0, "a global batch of ", policy.leaves,
          " leaves can't be shared evenly by ", ranks, " ranks");
  require(policy.shard_group >= 0 && (policy.shard_group == 0 || ranks % policy.shard_group == 0),
          "shard groups of ", policy.shard_group, " don't divide the ", ranks, " ranks");
  for (std::size_t u = 0; u + 1 < model.units.size(); ++u)
    require(model.units[u].lender < 0, "unit ", model.units[u].name,
            " borrows parameters, but only the last unit may");
  return Writer(model, ranks, policy, purpose).write();
}

}  // namespace ostrakon::plan
