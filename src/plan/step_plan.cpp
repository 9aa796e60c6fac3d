// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <numeric>
#include <ostrakon/base/error.hpp>
#include <ostrakon/plan/reduction_tree.hpp>
#include <ostrakon/plan/step_plan.hpp>

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
/// first written and end with their last use.
class Writer {
 public:
  Writer(const ModelDescription& model, int ranks, const Policy& policy, Purpose purpose)
      : model_(model), policy_(policy), units_(static_cast<int>(model.units.size())) {
    plan_.purpose = purpose;
    plan_.element_bytes = model.element_bytes;
    plan_.ranks = ranks;
    plan_.group_ranks = policy.shard_group > 0 ? policy.shard_group : ranks;
    plan_.micro_batches = policy.leaves / ranks;
    const Sharding sharding = policy.sharding;
    plan_.stored = sharding == Sharding::full ? Part::group : Part::whole;
    plan_.optimized = sharding == Sharding::none                             ? Part::whole
                      : policy.shard_optimizer_over == OptimizerGroup::world ? Part::rank
                                                                             : Part::group;
    plan_.accumulation = policy.accumulation;
    if (policy.accumulation == Accumulation::automatic) {
      const bool shards_gradients = sharding == Sharding::gradients || sharding == Sharding::full;
      plan_.accumulation = shards_gradients ? Accumulation::shard_each : Accumulation::reduce_last;
    }
    for (const UnitDescription& unit : model.units) {
      plan_.unit_names.push_back(unit.name);
      plan_.padded_elements.push_back(round_up(unit.parameter_elements, ranks * shard_alignment));
    }
  }

  StepPlan write() {
    make_persistent_buffers();
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

  const std::string& unit_name(int unit) const { return plan_.unit_names[unit]; }
  const UnitDescription& unit(int index) const { return model_.units[index]; }
  std::int64_t full_bytes(int unit) const {
    return plan_.padded_elements[unit] * model_.element_bytes;
  }
  std::int64_t bytes(int unit, Part part) const {
    return plan_.elements(unit, part) * model_.element_bytes;
  }

  void make_persistent_buffers() {
    const bool training = plan_.purpose != Purpose::decode;
    for (int u = 0; u < units_; ++u) {
      const std::int64_t moment_bytes = bytes(u, plan_.optimized);
      plan_.parameters.push_back(make_buffer(unit_name(u) + " parameters", Category::parameters,
                                             bytes(u, plan_.stored), true));
      if (!training) continue;
      plan_.first_moments.push_back(
          make_buffer(unit_name(u) + " first moment", Category::optimizer, moment_bytes, true));
      plan_.second_moments.push_back(
          make_buffer(unit_name(u) + " second moment", Category::optimizer, moment_bytes, true));
    }
    if (training) plan_.sums = make_buffer("sums", Category::other, model_.sums_bytes, true);
    gathered_.assign(units_, -1);
    gradient_.assign(units_, -1);
    partial_.resize(units_);
    final_gradient_.assign(units_, -1);
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

  /// Where an action finds the parameters of `unit`, gathering them first if they are not there.
  int parameters(int unit) {
    // A group of one has nothing to gather.
    if (plan_.stored == Part::whole || plan_.group_ranks == 1) return plan_.parameters[unit];
    if (gathered_[unit] < 0) {
      gathered_[unit] = make_transient("gathered", unit, Category::gathered, full_bytes(unit));
      Action& gather = emit(Kind::gather, Stream::gather, unit, -1);
      gather.elements = plan_.padded_elements[unit];
      use(gather, Role::shard, plan_.parameters[unit], Access::read);
      use(gather, Role::parameters, gathered_[unit], Access::write);
    }
    return gathered_[unit];
  }

  void release(int unit) {
    if (unit < 0 || gathered_[unit] < 0) return;
    Action& action = emit(Kind::release, Stream::compute, unit, -1);
    use(action, Role::parameters, gathered_[unit], Access::read);
    gathered_[unit] = -1;
  }

  int load(int micro_batch) {
    const int batch = make_buffer("batch", Category::activations, model_.batch_bytes);
    Action& action = emit(Kind::load, Stream::compute, -1, micro_batch);
    use(action, Role::batch, batch, Access::write);
    return batch;
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
    Action& action = emit(Kind::clip, Stream::reduce, -1, -1);
    use(action, Role::sums, plan_.sums, Access::read_write);
  }

  /// What one micro-batch leaves behind from forward for backward.
  struct Tape {
    int batch = -1;
    std::vector<int> output;
    std::vector<int> saved;
  };

  void forward(int u, int micro_batch, Tape& tape) {
    const int own = parameters(u);
    const int lender = unit(u).lender;
    const int lent = lender >= 0 ? parameters(lender) : -1;
    tape.output.push_back(make_transient("output", u, Category::activations, unit(u).output_bytes));
    tape.saved.push_back(make_transient("saved", u, Category::activations, unit(u).saved_bytes));
    const int workspace = make_transient("forward workspace", u, Category::workspace,
                                         unit(u).forward_workspace_bytes);
    Action& action = emit(Kind::forward, Stream::compute, u, micro_batch);
    action.flops = unit(u).forward_flops;
    use(action, Role::batch, tape.batch, Access::read);
    use(action, Role::parameters, own, Access::read);
    use(action, Role::lender_parameters, lent, Access::read);
    if (u > 0) use(action, Role::input, tape.output[u - 1], Access::read);
    use(action, Role::output, tape.output[u], Access::write);
    use(action, Role::saved, tape.saved[u], Access::write);
    use(action, Role::workspace, workspace, Access::write);
  }

  /// Backward of unit `u`. The last unit has had no forward: its backward computes the loss too.
  void backward(int u, int micro_batch, Tape& tape, int& gradient) {
    const bool last = u == units_ - 1;
    const UnitDescription& description = unit(u);
    const int own = description.backward_reads_parameters ? parameters(u) : -1;
    const int lender = description.lender;
    const int lent = lender >= 0 ? parameters(lender) : -1;
    if (last) {
      tape.output.push_back(
          make_transient("losses", u, Category::activations, description.output_bytes));
      tape.saved.push_back(
          make_transient("saved", u, Category::activations, description.saved_bytes));
      gradient = make_buffer("gradient", Category::activations, model_.gradient_bytes);
    }
    const int workspace = make_transient("backward workspace", u, Category::workspace,
                                         description.backward_workspace_bytes);
    const bool opened = gradient_[u] >= 0;
    if (!opened) gradient_[u] = make_transient("gradients", u, Category::gradients, full_bytes(u));
    if (lender >= 0)
      gradient_[lender] =
          make_transient("gradients", lender, Category::gradients, full_bytes(lender));

    Action& action = emit(Kind::backward, Stream::compute, u, micro_batch);
    action.flops = description.backward_flops;
    action.gradients_opened = opened;
    use(action, Role::batch, tape.batch, Access::read);
    use(action, Role::parameters, own, Access::read);
    use(action, Role::lender_parameters, lent, Access::read);
    if (u > 0) use(action, Role::input, tape.output[u - 1], Access::read);
    if (last) use(action, Role::output, tape.output[u], Access::write);
    use(action, Role::saved, tape.saved[u], last ? Access::write : Access::read_write);
    use(action, Role::workspace, workspace, Access::write);
    use(action, Role::gradient, gradient, last ? Access::write : Access::read_write);
    use(action, Role::parameter_gradients, gradient_[u],
        opened ? Access::read_write : Access::write);
    if (lender >= 0) use(action, Role::lender_gradients, gradient_[lender], Access::write);
  }

  // ---- gradients

  /// The part of an array that a rank of `group` has when the whole of it is divided over the
  /// group.
  static Part whole_of(Group group) { return group == Group::shard ? Part::whole : Part::group; }
  static Part part_of(Group group) { return group == Group::shard ? Part::group : Part::rank; }

  /// Sums gradients over the ranks of `group`; returns the buffer with this rank's part.
  int reduce_scatter(int u, int gradients, Group group) {
    if (plan_.size(group) == 1) return gradients;
    const int staging = make_transient("staging", u, Category::staging, bytes(u, whole_of(group)));
    const int part =
        make_transient("gradient shard", u, Category::gradients, bytes(u, part_of(group)));
    Action& action = emit(Kind::reduce_scatter, Stream::reduce, u, -1);
    action.group = group;
    action.elements = plan_.elements(u, whole_of(group));
    use(action, Role::parameter_gradients, gradients, Access::read);
    use(action, Role::staging, staging, Access::write);
    use(action, Role::gradient_shard, part, Access::write);
    return part;
  }

  /// Gathers summed gradients over `group`; returns the buffer with the whole.
  int gather_gradients(int u, int gradients, Group group) {
    if (plan_.size(group) == 1) return gradients;
    const int whole =
        make_transient("gradients", u, Category::gradients, bytes(u, whole_of(group)));
    Action& action = emit(Kind::gather_gradients, Stream::gather, u, -1);
    action.group = group;
    action.elements = plan_.elements(u, whole_of(group));
    use(action, Role::gradient_shard, gradients, Access::read);
    use(action, Role::parameter_gradients, whole, Access::write);
    return whole;
  }

  void gather_updates(int u, Group group) {
    if (plan_.size(group) == 1) return;
    Action& action = emit(Kind::gather_updates, Stream::gather, u, -1);
    action.group = group;
    action.elements = plan_.elements(u, whole_of(group));
    use(action, Role::shard, plan_.parameters[u], Access::read_write);
  }

  /// Adds the partial sum of one micro-batch to the unit's tree; returns the root once complete,
  /// else -1.
  int fold(int u, int micro_batch, int buffer, std::int64_t elements) {
    auto& done = partial_[u];
    TreeNode node{micro_batch, 1};
    while (node.leaves < plan_.micro_batches) {
      const auto [parent, sibling] = parent_and_sibling(node, plan_.micro_batches);
      const auto other = done.find(sibling);
      if (other == done.end()) {
        done[node] = buffer;
        return -1;
      }
      // The sum of two floats has the same bits either way round: add to the one that is older.
      Action& action = emit(Kind::accumulate, Stream::compute, u, -1);
      action.elements = elements;
      use(action, Role::source, buffer, Access::read);
      use(action, Role::parameter_gradients, other->second, Access::read_write);
      buffer = other->second;
      done.erase(other);
      node = parent;
    }
    return buffer;
  }

  /// What happens to a unit's gradients when one micro-batch's backward has written them.
  void gradients_ready(int u, int micro_batch) {
    const Accumulation order = plan_.accumulation;
    int sum = gradient_[u];
    gradient_[u] = -1;
    const auto fold_here = [&](Accumulation where, Part part) {
      if (order == where && sum >= 0) sum = fold(u, micro_batch, sum, plan_.elements(u, part));
    };
    fold_here(Accumulation::reduce_last, Part::whole);
    if (sum >= 0) sum = reduce_scatter(u, sum, Group::shard);
    fold_here(Accumulation::shard_each, Part::group);
    if (sum >= 0) sum = reduce_scatter(u, sum, Group::replicate);
    fold_here(Accumulation::reduce_each, Part::rank);
    if (sum < 0) return;
    final_gradient_[u] = sum;
    Action& norm = emit(Kind::norm, Stream::compute, u, -1);
    norm.elements = plan_.elements(u, Part::rank);
    use(norm, Role::gradient_shard, sum, Access::read);
    use(norm, Role::sums, plan_.sums, Access::read_write);
  }

  void optimize(int u) {
    int gradients = final_gradient_[u];
    if (plan_.optimized != Part::rank) gradients = gather_gradients(u, gradients, Group::replicate);
    if (plan_.optimized == Part::whole) gradients = gather_gradients(u, gradients, Group::shard);
    Action& action = emit(Kind::optimize, Stream::compute, u, -1);
    action.elements = plan_.elements(u, plan_.optimized);
    use(action, Role::gradient_shard, gradients, Access::read);
    use(action, Role::shard, plan_.parameters[u], Access::read_write);
    use(action, Role::first_moment, plan_.first_moments[u], Access::read_write);
    use(action, Role::second_moment, plan_.second_moments[u], Access::read_write);
    if (plan_.optimized == Part::rank) gather_updates(u, Group::replicate);
    if (plan_.optimized != Part::whole && plan_.stored == Part::whole)
      gather_updates(u, Group::shard);
  }

  // ---- programs

  bool keeps_after_forward(int u) const {
    return policy_.reshard_after_forward == Reshard::never && unit(u).backward_reads_parameters;
  }

  void write_training_step() {
    clear_sums();
    for (int micro_batch : leaf_sequence(plan_.micro_batches, policy_.leaf_order)) {
      Tape tape;
      tape.batch = load(micro_batch);
      const int last = units_ - 1;
      for (int u = 0; u < last; ++u) {
        forward(u, micro_batch, tape);
        const bool lent_later =
            u == unit(last).lender && policy_.reshard_after_forward == Reshard::never;
        if (!keeps_after_forward(u) && !lent_later) release(u);
      }
      int gradient = -1;
      for (int u = last; u >= 0; --u) {
        backward(u, micro_batch, tape, gradient);
        release(u);
        release(unit(u).lender);
        if (u == last) add_loss(tape.output[last], micro_batch);
        gradients_ready(u, micro_batch);
      }
    }
    sum_sums();
    for (int u = 0; u < units_; ++u) optimize(u);
  }

  void write_evaluation() {
    clear_sums();
    for (int micro_batch : leaf_sequence(plan_.micro_batches, policy_.leaf_order)) {
      Tape tape;
      tape.batch = load(micro_batch);
      for (int u = 0; u < units_; ++u) {
        forward(u, micro_batch, tape);
        release(u);
        release(unit(u).lender);
      }
      add_loss(tape.output.back(), micro_batch);
    }
    sum_sums();
  }

  void write_export() {
    for (int u = 0; u < units_; ++u) {
      const int whole = parameters(u);
      Action& visit = emit(Kind::visit, Stream::compute, u, -1);
      use(visit, Role::parameters, whole, Access::read);
      release(u);
    }
  }

  void write_decoding() {
    Tape tape;
    tape.batch = load(0);
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
  }

  const ModelDescription& model_;
  const Policy& policy_;
  const int units_;
  StepPlan plan_;

  std::vector<int> gathered_;        // of each unit, or -1 while it is released
  std::vector<int> gradient_;        // that the running micro-batch writes, or -1
  std::vector<int> final_gradient_;  // summed over micro-batches and ranks, this rank's part
  std::vector<std::map<TreeNode, int>> partial_;
};

class Hasher {
 public:
  void add(const std::string& value) {
    for (char c : value) step(static_cast<unsigned char>(c));
    step(0xff);
  }
  void add(std::int64_t value) {
    for (int i = 0; i < 8; ++i) step(static_cast<unsigned char>(value >> (8 * i)));
  }
  std::uint64_t value() const { return state_; }

 private:
  void step(unsigned char byte) { state_ = (state_ ^ byte) * 0x100000001b3ull; }  // FNV-1a
  std::uint64_t state_ = 0xcbf29ce484222325ull;
};

}  // namespace

const char* name(Kind kind) {
  switch (kind) {
    case Kind::begin:
      return "begin";
    case Kind::load:
      return "load";
    case Kind::gather:
      return "gather";
    case Kind::forward:
      return "forward";
    case Kind::backward:
      return "backward";
    case Kind::release:
      return "release";
    case Kind::loss:
      return "loss";
    case Kind::reduce_scatter:
      return "reduce_scatter";
    case Kind::accumulate:
      return "accumulate";
    case Kind::norm:
      return "norm";
    case Kind::clip:
      return "clip";
    case Kind::gather_gradients:
      return "gather_gradients";
    case Kind::optimize:
      return "optimize";
    case Kind::gather_updates:
      return "gather_updates";
    case Kind::visit:
      return "visit";
  }
  return "?";
}

const char* name(Stream stream) {
  switch (stream) {
    case Stream::compute:
      return "compute";
    case Stream::gather:
      return "gather";
    case Stream::reduce:
      return "reduce";
  }
  return "?";
}

const char* name(Category category) {
  switch (category) {
    case Category::parameters:
      return "parameters";
    case Category::optimizer:
      return "optimizer state";
    case Category::gathered:
      return "gathered parameters";
    case Category::gradients:
      return "gradients";
    case Category::activations:
      return "activations";
    case Category::workspace:
      return "workspace";
    case Category::staging:
      return "communication staging";
    case Category::other:
      return "other";
  }
  return "?";
}

int Action::buffer(Role role) const {
  for (const Use& used : uses)
    if (used.role == role) return used.buffer;
  return -1;
}

std::string StepPlan::describe(const Action& action) const {
  std::string text = name(action.kind);
  if (action.unit < 0 && action.micro_batch < 0) return text;
  text += "(";
  if (action.unit >= 0) text += unit_names[action.unit];
  if (action.micro_batch >= 0)
    text +=
        (action.unit >= 0 ? ", micro-batch " : "micro-batch ") + std::to_string(action.micro_batch);
  return text + ")";
}

std::int64_t StepPlan::leaf(int replica, int group_rank, std::int64_t micro_batch) const {
  const std::int64_t position = static_cast<std::int64_t>(replica) * group_ranks + group_rank;
  switch (accumulation) {
    case Accumulation::reduce_each:
      return micro_batch * ranks + position;
    case Accumulation::shard_each:
      return (replica * micro_batches + micro_batch) * group_ranks + group_rank;
    default:
      return position * micro_batches + micro_batch;
  }
}

std::int64_t StepPlan::bytes_sent(Group group) const {
  std::int64_t bytes = 0;
  for (const Action& action : actions) {
    if (action.group != group) continue;
    switch (action.kind) {
      case Kind::gather:
      case Kind::reduce_scatter:
      case Kind::gather_gradients:
      case Kind::gather_updates:
        bytes += action.elements * element_bytes / size(group) * (size(group) - 1);
        break;
      default:
        break;
    }
  }
  return bytes;
}

double StepPlan::flops() const {
  double total = 0.0;
  for (const Action& action : actions) total += action.flops;
  return total;
}

bool StepPlan::has_the_bits_of_one_rank() const {
  std::int64_t order[3] = {micro_batches, group_ranks, replicas()};
  if (accumulation != Accumulation::reduce_last) std::swap(order[0], order[1]);
  if (accumulation == Accumulation::reduce_each) std::swap(order[1], order[2]);
  const auto is_power_of_two = [](std::int64_t n) { return (n & (n - 1)) == 0; };
  int last = 2;
  while (last > 0 && order[last] == 1) --last;
  return std::all_of(order, order + last, is_power_of_two);
}

std::uint64_t StepPlan::hash() const {
  Hasher hasher;
  hasher.add(static_cast<std::int64_t>(purpose));
  hasher.add(static_cast<std::int64_t>(ranks));
  hasher.add(static_cast<std::int64_t>(group_ranks));
  hasher.add(static_cast<std::int64_t>(stored));
  hasher.add(static_cast<std::int64_t>(optimized));
  hasher.add(static_cast<std::int64_t>(accumulation));
  hasher.add(micro_batches);
  for (std::int64_t elements : padded_elements) hasher.add(elements);
  for (const Buffer& buffer : buffers) {
    hasher.add(buffer.name);
    hasher.add(buffer.bytes);
  }
  for (const Action& action : actions) {
    hasher.add(static_cast<std::int64_t>(action.kind));
    hasher.add(static_cast<std::int64_t>(action.stream));
    hasher.add(static_cast<std::int64_t>(action.group));
    hasher.add(static_cast<std::int64_t>(action.unit));
    hasher.add(static_cast<std::int64_t>(action.micro_batch));
    hasher.add(action.elements);
    for (const Use& used : action.uses) {
      hasher.add(static_cast<std::int64_t>(used.role));
      hasher.add(static_cast<std::int64_t>(used.buffer));
      hasher.add(static_cast<std::int64_t>(used.access));
    }
  }
  return hasher.value();
}

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
