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

/// Of all equal parts of an array of `elements`, `part_elements` each: the most that `of` makes of
/// one, given its first element and its end. `of` changes only where a part meets the begin or the
/// end of a matrix in another way, so that those near them stand for all.
template <class Value, class Of>
Value most_of_parts(std::int64_t elements, std::int64_t part_elements,
                    const std::vector<WholeMatrix>& matrices, const Of& of) {
  std::vector<std::int64_t> edges = {0, elements};
  for (const WholeMatrix& matrix : matrices) {
    edges.push_back(matrix.offset);
    edges.push_back(matrix.end());
  }
  Value most{};
  for (std::int64_t edge : edges)
    for (std::int64_t part = edge / part_elements - 1; part <= edge / part_elements + 1; ++part) {
      const std::int64_t first = part * part_elements;
      if (first >= 0 && first < elements) most = std::max(most, of(first, first + part_elements));
    }
  return most;
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
    const bool full = policy.sharding == Sharding::full;
    plan_.optimized = policy.sharding == Sharding::none                      ? Part::whole
                      : policy.shard_optimizer_over == OptimizerGroup::world ? Part::rank
                                                                             : Part::group;
    computed_ = full ? Part::group : Part::whole;
    // Beside copies to compute with, masters are needed only where they are updated.
    plan_.stored = has_working_copies() ? plan_.optimized : computed_;
    plan_.updates = offloads(Offload::optimizer) ? Space::host : Space::device;
    plan_.accumulation = accumulation_of(policy);
    const auto padded = [&](std::int64_t elements) {
      return round_up(elements, ranks * shard_alignment);
    };
    for (const UnitDescription& unit : model.units) {
      plan_.unit_names.push_back(unit.name);
      plan_.parameter_elements.push_back(unit.parameter_elements);
      plan_.padded_elements.push_back(padded(unit.parameter_elements - unit.frozen_elements));
      plan_.padded_frozen.push_back(padded(unit.frozen_elements));
      plan_.frozen_count += unit.frozen_count;
      plan_.whole_matrices.push_back(unit.whole_matrices);
    }
    while (first_trained_ < units_ && plan_.padded_elements[first_trained_] == 0) ++first_trained_;
    find_checkpointed();
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
  // ---- what is where

  bool is_run() const { return plan_.purpose != Purpose::decode; }
  /// Whether `what`, optimizer or parameters, is in host memory.
  bool offloads(Offload what) const { return is_run() && plan::offloads(policy_.offload, what); }
  bool updates_on_host() const { return plan_.updates == Space::host; }
  Stream update_stream() const { return updates_on_host() ? Stream::host : Stream::compute; }
  bool converts() const { return model_.element_bytes != model_.master_bytes; }

  /// Whether masters are not what is computed with, or gathered to compute with. They are converted
  /// as they are gathered where that is on the device.
  bool has_working_copies() const {
    if (!is_run()) return false;
    const bool apart = offloads(Offload::optimizer) && !offloads(Offload::parameters);
    const bool converted_once = policy_.sharding != Sharding::full || offloads(Offload::parameters);
    return apart || (converts() && converted_once);
  }
  /// What is computed with where every rank has the whole, or is gathered from.
  int computed_with(int u) const {
    return has_working_copies() ? plan_.working[u] : plan_.parameters[u];
  }
  std::int64_t computed_bytes() const {
    return has_working_copies() ? model_.element_bytes : model_.master_bytes;
  }

  bool is_on_host(int buffer) const { return plan_.buffers[buffer].space == Space::host; }
  bool is_trained(int u) const { return plan_.padded_elements[u] > 0; }
  std::vector<Segment> segments_of(int u) const {
    std::vector<Segment> segments;
    for (Segment segment : {Segment::frozen, Segment::trained})
      if (plan_.elements(u, Part::whole, segment) > 0) segments.push_back(segment);
    return segments;
  }

  // ---- buffers

  int make_buffer(std::string name, Category category, std::int64_t bytes, Space space,
                  bool persistent = false) {
    Buffer buffer;
    buffer.name = std::move(name);
    buffer.category = category;
    buffer.space = space;
    buffer.bytes = bytes;
    buffer.persistent = persistent;
    plan_.buffers.push_back(std::move(buffer));
    last_use_.push_back(-1);
    return static_cast<int>(plan_.buffers.size()) - 1;
  }

  /// A transient buffer, or -1 where nothing would be in it.
  int make_transient(const std::string& what, int unit, Category category, std::int64_t bytes,
                     Space space = Space::device) {
    return bytes > 0 ? make_buffer(unit_name(unit) + " " + what, category, bytes, space) : -1;
  }

  /// The same for a part of a unit's parameters, or of what is like them.
  int make_part(const std::string& what, int u, Category category, Part part, Segment segment,
                std::int64_t element_bytes, Space space = Space::device) {
    return as_part(
        make_transient(what, u, category, plan_.elements(u, part, segment) * element_bytes, space),
        part, segment);
  }
  int make_state(const std::string& what, int u, Category category, Part part, Segment segment,
                 std::int64_t bytes, Space space) {
    return as_part(make_buffer(unit_name(u) + " " + what, category, bytes, space, true), part,
                   segment);
  }
  int as_part(int buffer, Part part, Segment segment) {
    if (buffer >= 0) {
      plan_.buffers[buffer].part = part;
      plan_.buffers[buffer].segment = segment;
    }
    return buffer;
  }
  int make_gradients(const std::string& what, int u, Part part, Space space = Space::device) {
    return make_part(what, u, Category::gradients, part, Segment::trained, model_.master_bytes,
                     space);
  }

  const std::string& unit_name(int unit) const { return plan_.unit_names[unit]; }
  const UnitDescription& unit(int index) const { return model_.units[index]; }
  /// Of parameters as they are computed with.
  std::int64_t full_bytes(int unit) const {
    return plan_.elements(unit, Part::whole, Segment::both) * model_.element_bytes;
  }

  /// Elements that a rank may have outside of whole matrices.
  std::int64_t second_moments(int u) const {
    const std::vector<WholeMatrix>& matrices = plan_.whole_matrices[u];
    return most_of_parts<std::int64_t>(
        plan_.elements(u, Part::whole), plan_.elements(u, plan_.optimized), matrices,
        [&](std::int64_t first, std::int64_t end) {
          std::int64_t outside = end - first;
          for (const WholeMatrix& matrix : matrices)
            outside -= std::max<std::int64_t>(
                0, std::min(end, matrix.end()) - std::max(first, matrix.offset));
          return outside;
        });
  }

  /// Ranks save what no other one does.
  std::int64_t checkpoint_bytes(std::int64_t moment_bytes) const {
    std::int64_t bytes = 0;
    for (int u = 0; u < units_; ++u)
      bytes += plan_.elements(u, Part::rank, Segment::both) * model_.master_bytes +
               plan_.elements(u, Part::rank) * policy_.moments.count * moment_bytes;
    return bytes;
  }

  void make_persistent_buffers() {
    const Space parameter_space =
        is_run() && policy_.offload != Offload::none ? Space::host : Space::device;
    const Space working_space = offloads(Offload::parameters) ? Space::host : Space::device;
    const std::int64_t moment_bytes =
        bytes_of(policy_.moments.number) * (model_.master_bytes / bytes_of(Number::fp32));
    const auto moment = [&](const char* what, int u, std::int64_t elements) {
      return is_trained(u) ? make_state(what, u, Category::optimizer, plan_.optimized,
                                        Segment::trained, elements * moment_bytes, plan_.updates)
                           : -1;
    };
    for (int u = 0; u < units_; ++u) {
      const auto elements = [&](Part part) { return plan_.elements(u, part, Segment::both); };
      plan_.parameters.push_back(
          make_state("parameters", u, Category::parameters, plan_.stored, Segment::both,
                     elements(plan_.stored) * model_.master_bytes, parameter_space));
      if (has_working_copies())
        plan_.working.push_back(
            make_state("working copy", u, Category::parameters, computed_, Segment::both,
                       elements(computed_) * model_.element_bytes, working_space));
      if (is_run() && policy_.moments.count > 0)
        plan_.first_moments.push_back(
            moment("first moment", u, plan_.elements(u, plan_.optimized)));
      if (is_run() && policy_.moments.count > 1)
        plan_.second_moments.push_back(is_trained(u) ? moment("second moment", u, second_moments(u))
                                                     : -1);
    }
    if (is_run())
      plan_.sums = make_buffer("sums", Category::other, model_.sums_bytes, Space::device, true);
    if (is_run() && policy_.checkpoint_staging)
      plan_.checkpoint = make_buffer("checkpoint", Category::other, checkpoint_bytes(moment_bytes),
                                     Space::host, true);
    gathered_.assign(units_, -1);
    uploaded_.assign(units_, -1);
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

  Action& emit_collective(Kind kind, Stream stream, int unit, Group group, int group_ranks,
                          std::int64_t elements, std::int64_t element_bytes) {
    Action& action = emit(kind, stream, unit, -1);
    action.group = group;
    action.group_ranks = group_ranks;
    action.elements = elements;
    action.element_bytes = element_bytes;
    return action;
  }

  void use(Action& action, Role role, int buffer, Access access) {
    if (buffer < 0) return;
    action.uses.push_back({role, buffer, access});
    last_use_[buffer] = static_cast<int>(plan_.actions.size()) - 1;
  }

  /// Copies all of a buffer to one of the same form, in the other memory.
  void copy_all(int u, int source, int target) {
    copy(u, source, target, Segment::both, Part::whole, plan_.buffers[source].bytes, 1);
  }
  /// Copies that part of the trained segment that both have.
  void copy_trained(int u, int source, int target, Part part, std::int64_t element_bytes) {
    copy(u, source, target, Segment::trained, part, plan_.elements(u, part), element_bytes);
  }
  void copy(int u, int source, int target, Segment segment, Part part, std::int64_t elements,
            std::int64_t element_bytes) {
    const bool up = is_on_host(source);
    Action& action = emit(up ? Kind::copy_to_device : Kind::copy_to_host,
                          up ? Stream::upload : Stream::download, u, -1);
    action.segment = segment;
    action.part = part;
    action.elements = elements;
    action.element_bytes = element_bytes;
    // Where other parts of it are to stay, or it is gathered around this one.
    const bool fills = plan_.buffers[target].bytes == elements * element_bytes;
    const bool begins = !plan_.buffers[target].persistent && last_use_[target] < 0;
    use(action, Role::source, source, Access::read);
    use(action, Role::target, target, fills || begins ? Access::write : Access::read_write);
  }
  /// A copy in the other memory.
  int copied(int u, int source, const std::string& what) {
    const Buffer from = plan_.buffers[source];
    const Space space = from.space == Space::host ? Space::device : Space::host;
    const int target =
        as_part(make_transient(what, u, from.category, from.bytes, space), from.part, from.segment);
    copy_all(u, source, target);
    return target;
  }

  /// Ends buffers: compute waits here for whatever uses them on other streams.
  void release(int unit, const std::vector<int>& buffers) {
    if (buffers.empty()) return;
    Action& action = emit(Kind::release, Stream::compute, unit, -1);
    // As a write, so that it comes after those who only read.
    for (int buffer : buffers) use(action, Role::ended, buffer, Access::read_write);
  }

  void load(int micro_batch, int batch) {
    // What is generated comes with the call.
    const int on_host = is_run() ? make_buffer("batch on host", Category::activations,
                                               model_.batch_bytes, Space::host)
                                 : -1;
    Action& action = emit(Kind::load, Stream::compute, -1, micro_batch);
    use(action, Role::host_batch, on_host, Access::write);
    use(action, Role::batch, batch, Access::write);
  }

  void add_loss(int losses, int micro_batch) {
    Action& action = emit(Kind::loss, Stream::compute, units_ - 1, micro_batch);
    use(action, Role::output, losses, Access::read);
    use(action, Role::sums, plan_.sums, Access::read_write);
  }

  int make_host_sums() {
    // One number more: how many ranks have failed.
    return make_buffer("sums on host", Category::other, model_.sums_bytes + sizeof(std::int64_t),
                       Space::host);
  }

  void clear_sums() {
    // Of what the host sums.
    if (plan_.purpose == Purpose::train && updates_on_host()) host_sums_ = make_host_sums();
    Action& action = emit(Kind::begin, Stream::compute, -1, -1);
    use(action, Role::sums, plan_.sums, Access::write);
    use(action, Role::host_sums, host_sums_, Access::write);
  }

  void sum_sums() {
    const bool begins = host_sums_ < 0;
    if (begins) host_sums_ = make_host_sums();
    Action& action = emit(Kind::clip, Stream::compute, -1, -1);
    use(action, Role::sums, plan_.sums, Access::read_write);
    use(action, Role::host_sums, host_sums_, begins ? Access::write : Access::read_write);
    // Where something is not finite, it is looked for in each unit's gradient.
    if (!updates_early())
      for (int gradients : plan_.gradients)
        use(action, Role::gradient_shard, gradients, Access::read);
  }

  // ---- parameters

  /// A group of one has nothing to gather, but may have to convert; and what is on the host is
  /// brought to the device, at least.
  bool gathers() const {
    if (!is_run()) return false;
    const bool converts_now = converts() && !has_working_copies();
    return is_on_host(computed_with(0)) ||
           (policy_.sharding == Sharding::full && (plan_.group_ranks > 1 || converts_now));
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
        for (int u = units_ - 1; u >= first_trained_; --u)
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
    gathered_[u] = as_part(make_transient("gathered", u, Category::gathered, full_bytes(u)),
                           Part::whole, Segment::both);
    const bool is_kept = kept_[u] >= 0;
    const bool uploads = !is_kept && is_on_host(computed_with(u));
    if (uploads && (computed_ == Part::whole || plan_.group_ranks == 1)) {
      copy_all(u, computed_with(u), gathered_[u]);
      return;
    }
    if (uploads) uploaded_[u] = copied(u, computed_with(u), "uploaded");
    const int from = is_kept ? kept_[u] : uploads ? uploaded_[u] : computed_with(u);
    Access access = Access::write;
    for (Segment segment : segments_of(u)) {
      Action& action =
          emit_collective(Kind::gather, Stream::gather, u, is_kept ? Group::kept : Group::shard,
                          is_kept ? kept_parts_[u] : plan_.group_ranks,
                          plan_.elements(u, Part::whole, segment), model_.element_bytes);
      action.segment = segment;
      action.converts = converts() && !is_kept && !has_working_copies();
      use(action, Role::shard, from, Access::read);
      use(action, Role::parameters, gathered_[u], access);
      access = Access::read_write;
    }
  }

  /// Gathers what the next visit needs, and what is prefetched while it computes.
  void begin_visit(int own, int lender) {
    if (!schedule_) return;
    for (int u : schedule_->begin(visit_)) gather(u);
    for (int u : {own, lender}) {
      if (u < 0 || uploaded_[u] < 0) continue;
      release(u, {uploaded_[u]});
      uploaded_[u] = -1;
    }
  }

  /// Where the visit's compute finds the parameters of `unit`.
  int parameters(int unit) const {
    return gathered_[unit] >= 0 ? gathered_[unit] : computed_with(unit);
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
      const std::int64_t elements = plan_.elements(u, Part::whole, Segment::both) / kept_parts_[u];
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
    // Copies on the host of those that are away.
    std::vector<int> output_on_host;
    std::vector<int> saved_on_host;
    std::vector<int> leaving;   ///< on the device, being copied
    std::vector<bool> is_back;  ///< of each unit: what its backward reads
  };

  Tape make_tape() {
    Tape tape;
    tape.batch = make_buffer("batch", Category::activations, model_.batch_bytes, Space::device);
    tape.output_on_host.assign(units_, -1);
    tape.saved_on_host.assign(units_, -1);
    tape.is_back.assign(units_, false);
    return tape;
  }

  void forward(int u, int micro_batch, Tape& tape) {
    const int lender = unit(u).lender;
    begin_visit(u, lender);
    // What is gathered for the first unit is on its way while the batch is read.
    if (u == 0) load(micro_batch, tape.batch);
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

  /// Of which units what forward saves ends with it, to be computed again for backward. The last
  /// unit has no forward of its own.
  void find_checkpointed() {
    const int every = policy_.activation_checkpointing.every;
    checkpointed_.assign(units_, false);
    int seen = 0;
    for (int u = 0; every > 0 && u + 1 < units_; ++u)
      if (unit(u).recomputes) checkpointed_[u] = seen++ % every == 0;
  }

  /// Whether what backward of unit `u` reads waits on the host. The last two backwards follow at
  /// once.
  bool waits_on_host(int u) const {
    return policy_.offload_activations && u >= first_trained_ && u < units_ - 2;
  }

  /// After forward of unit `u`: begins to copy to the host what it left for backward, and ends what
  /// the unit before it left, which this one has read.
  void send_away(int u, Tape& tape) {
    std::vector<int> leaving;
    const auto send = [&](int buffer, const char* what) {
      leaving.push_back(buffer);
      return copied(u, buffer, what);
    };
    if (waits_on_host(u) && !checkpointed_[u] && tape.saved[u] >= 0)
      tape.saved_on_host[u] = send(tape.saved[u], "saved on host");
    if (waits_on_host(u + 1) && tape.output[u] >= 0)
      tape.output_on_host[u] = send(tape.output[u], "output on host");
    release(u, tape.leaving);
    tape.leaving = std::move(leaving);
  }

  /// Begins to copy back what backward of unit `u` reads.
  void bring_back(int u, Tape& tape) {
    if (u < 0 || !waits_on_host(u) || tape.is_back[u]) return;
    tape.is_back[u] = true;
    if (tape.saved_on_host[u] >= 0) tape.saved[u] = copied(u, tape.saved_on_host[u], "saved again");
    if (u > 0 && tape.output_on_host[u - 1] >= 0)
      tape.output[u - 1] = copied(u, tape.output_on_host[u - 1], "input again");
  }

  /// After backward of unit `u`.
  void end_on_host(int u, const Tape& tape) {
    std::vector<int> ended;
    if (tape.saved_on_host[u] >= 0) ended.push_back(tape.saved_on_host[u]);
    if (u > 0 && tape.output_on_host[u - 1] >= 0) ended.push_back(tape.output_on_host[u - 1]);
    release(u, ended);
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
    const bool last = u == units_ - 1;
    const UnitDescription& description = unit(u);
    const bool reads_own = description.backward_reads_parameters;
    const int lender = description.lender;
    begin_visit(reads_own ? u : -1, lender);
    bring_back(u, tape);
    if (u > first_trained_) bring_back(u - 1, tape);
    if (last) {
      tape.output.push_back(
          make_transient("losses", u, Category::activations, description.output_bytes));
      tape.saved.push_back(
          make_transient("saved", u, Category::activations, description.saved_bytes));
      gradient =
          make_buffer("gradient", Category::activations, model_.gradient_bytes, Space::device);
    }
    if (checkpointed_[u]) recompute(u, micro_batch, tape);
    const int workspace = make_transient("backward workspace", u, Category::workspace,
                                         description.backward_workspace_bytes);
    const bool opened = gradient_[u] >= 0;
    if (!opened) gradient_[u] = make_gradients("gradients", u, Part::whole);
    const bool lends = lender >= 0 && description.lender_gradients;
    if (lends) gradient_[lender] = make_gradients("gradients", lender, Part::whole);

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
    if (lends) use(action, Role::lender_gradients, gradient_[lender], Access::write);
    end_visit(reads_own ? u : -1, lender);
    end_on_host(u, tape);
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
    Stream stream = Stream::compute;  ///< of what was done last
    std::vector<int> ended;           ///< buffers that end when compute has waited for the rest
  };

  /// From here on it goes beside compute, and beside no more than in_flight_reductions others.
  void leave_compute(Reduction& reduction, Stream stream) {
    if (reduction.stream == Stream::compute)
      finish_reductions(static_cast<std::size_t>(std::max(policy_.in_flight_reductions - 1, 0)));
    reduction.stream = stream;
  }

  /// Copies what is summed so far to where it goes on.
  void bring_to(Space space, Reduction& reduction) {
    if (reduction.sum < 0 || plan_.buffers[reduction.sum].space == space) return;
    const bool up = space == Space::device;
    leave_compute(reduction, up ? Stream::reduce : Stream::host);
    reduction.ended.push_back(reduction.sum);
    reduction.sum = copied(reduction.unit, reduction.sum, up ? "gradients" : "gradients on host");
  }

  /// Sums gradients over the ranks of `group`; this rank's part is left.
  void reduce_scatter(Reduction& reduction, Group group) {
    if (reduction.sum < 0 || ranks_of(group) == 1) return;
    const int u = reduction.unit;
    bring_to(Space::device, reduction);
    leave_compute(reduction, Stream::reduce);
    // Between nodes sums go on in full precision.
    const bool packs = group == Group::shard && policy_.reduce != Number::fp32;
    const std::int64_t elements = plan_.elements(u, whole_of(group));
    const std::int64_t wire_bytes = packs ? bytes_of(policy_.reduce) : model_.master_bytes;
    const int packed =
        packs ? make_transient("packed", u, Category::staging, elements * wire_bytes) : -1;
    const int staging = make_transient("staging", u, Category::staging, elements * wire_bytes);
    const int part = make_gradients("gradient shard", u, part_of(group));
    Action& action = emit_collective(Kind::reduce_scatter, Stream::reduce, u, group,
                                     ranks_of(group), elements, wire_bytes);
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
    if (reduction.sum < 0 || plan_.micro_batches == 1) return;
    // Sums that wait for others do so where updates will need them.
    bring_to(plan_.updates, reduction);
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
    if (gradient_[u] < 0) return;
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
    bring_to(plan_.updates, reduction);
    if (reduction.sum >= 0) {
      plan_.gradients[u] = reduction.sum;
      if (updates_on_host()) add_norm(u);
    }
    const bool updates_now = reduction.sum >= 0 && updates_early();
    if (reduction.stream == Stream::compute) {
      finish(reduction);
    } else {
      reductions_.push_back(std::move(reduction));
      if (policy_.in_flight_reductions == 0) finish_reductions(0);
    }
    if (updates_now) {
      begin_update(u);
      end_update(u);
    }
  }

  void add_norm(int u) {
    Action& norm = emit(Kind::norm, update_stream(), u, -1);
    norm.elements = plan_.elements(u, Part::rank);
    use(norm, Role::gradient_shard, plan_.gradients[u], Access::read);
    if (updates_on_host())
      use(norm, Role::host_sums, host_sums_, Access::read_write);
    else
      use(norm, Role::sums, plan_.sums, Access::read_write);
  }

  /// Waits for reductions, the oldest first, until `most` are under way.
  void finish_reductions(std::size_t most) {
    while (reductions_.size() > most) {
      finish(reductions_.front());
      reductions_.pop_front();
    }
  }

  void finish(const Reduction& reduction) {
    if (reduction.sum >= 0 && !updates_on_host()) add_norm(reduction.unit);
    std::vector<int> on_device, on_host;
    for (int buffer : reduction.ended) (is_on_host(buffer) ? on_host : on_device).push_back(buffer);
    release(reduction.unit, on_device);
    ended_on_host_.push_back({reduction.unit, std::move(on_host)});
    finish_on_host(units_behind);
  }

  /// The host may be slower than the device for a while: compute waits for it later, for the sake
  /// of host memory alone.
  static constexpr std::size_t units_behind = 4;
  void finish_on_host(std::size_t most) {
    while (ended_on_host_.size() > most) {
      release(ended_on_host_.front().first, ended_on_host_.front().second);
      ended_on_host_.pop_front();
    }
  }

  // ---- update

  bool updates_early() const { return policy_.early_updates && updates_on_host(); }

  /// Gathers summed gradients over `group`; returns the buffer with the whole.
  int gather_gradients(int u, int gradients, Group group) {
    if (ranks_of(group) == 1) return gradients;
    const int whole = make_gradients("gradients", u, whole_of(group));
    Action& action =
        emit_collective(Kind::gather_gradients, Stream::gather, u, group, ranks_of(group),
                        plan_.elements(u, whole_of(group)), model_.master_bytes);
    use(action, Role::gradient_shard, gradients, Access::read);
    use(action, Role::parameter_gradients, whole, Access::write);
    return whole;
  }

  /// A unit whose update has begun.
  struct Update {
    int gradients = -1;  ///< of all that this rank updates, where it updates
    int masters = -1;    ///< there too
    std::vector<int> ended;
  };

  /// Brings gradients, and masters, of all that a rank updates to where it does.
  void begin_update(int u) {
    Update update;
    int gradients = plan_.gradients[u];
    update.ended.push_back(gradients);
    const auto make_ours = [&](int buffer) {
      if (buffer != update.ended.back()) update.ended.push_back(buffer);
      return buffer;
    };
    const bool replicates = plan_.optimized != Part::rank && ranks_of(Group::replicate) > 1;
    const bool shares = plan_.optimized == Part::whole && ranks_of(Group::shard) > 1;
    if (replicates || shares) {
      if (updates_on_host()) gradients = make_ours(copied(u, gradients, "gradients"));
      if (replicates) gradients = make_ours(gather_gradients(u, gradients, Group::replicate));
      if (shares) gradients = make_ours(gather_gradients(u, gradients, Group::shard));
      if (updates_on_host()) gradients = make_ours(copied(u, gradients, "gradients on host"));
    }
    if (!plan_.whole_matrices[u].empty()) update_matrices(u, gradients, update);
    update.gradients = gradients;
    update.masters = plan_.parameters[u];
    if (is_on_host(update.masters) && !updates_on_host()) {
      // Where ranks give each other what they have updated, there is room for that.
      update.masters = make_part("masters", u, Category::parameters,
                                 has_working_copies() ? plan_.optimized : shared_part(),
                                 Segment::trained, model_.master_bytes);
      copy_trained(u, plan_.parameters[u], update.masters, plan_.optimized, model_.master_bytes);
      update.ended.push_back(update.masters);
    }
    updates_[u] = std::move(update);
  }

  /// Whether a rank updates less than it computes with, or gathers from.
  bool shares_updates() const {
    return (plan_.optimized == Part::rank && ranks_of(Group::replicate) > 1) ||
           (plan_.optimized != Part::whole && computed_ == Part::whole &&
            ranks_of(Group::shard) > 1);
  }
  Part shared_part() const { return shares_updates() ? computed_ : plan_.optimized; }

  /// Replaces the gradients of whole matrices by what they are updated by.
  void update_matrices(int u, int gradients, Update& update) {
    Action& direction = emit(Kind::direction, update_stream(), u, -1);
    direction.elements = plan_.elements(u, plan_.optimized);
    use(direction, Role::gradient_shard, gradients, Access::read_write);
    use(direction, Role::first_moment, plan_.first_moments[u], Access::read_write);
    follow_clip(direction);

    int ours = gradients;
    if (updates_on_host()) {
      ours = copied(u, gradients, "directions");
      update.ended.push_back(ours);
    }
    int whole = ours;
    const auto gather = [&](Group group) {
      const int gathered = gather_gradients(u, whole, group);
      if (gathered != whole) update.ended.push_back(gathered);
      whole = gathered;
    };
    if (plan_.optimized == Part::rank) gather(Group::replicate);
    if (plan_.optimized != Part::whole) gather(Group::shard);
    const int workspace = make_transient("orthogonalize workspace", u, Category::workspace,
                                         unit(u).orthogonalize_workspace_bytes);
    Action& action = emit(Kind::orthogonalize, Stream::compute, u, -1);
    action.elements = plan_.elements(u, plan_.optimized);
    action.flops = orthogonalize_flops(u);
    use(action, Role::parameter_gradients, whole, Access::read_write);
    use(action, Role::workspace, workspace, Access::write);
    if (whole != ours) use(action, Role::gradient_shard, ours, Access::read_write);
    if (ours != gradients) copy_all(u, ours, gradients);
  }

  /// Of the rank that has the most to do.
  double orthogonalize_flops(int u) const {
    const std::vector<WholeMatrix>& matrices = plan_.whole_matrices[u];
    return most_of_parts<double>(plan_.elements(u, Part::whole), plan_.elements(u, plan_.optimized),
                                 matrices, [&](std::int64_t first, std::int64_t end) {
                                   double flops = 0.0;
                                   for (const WholeMatrix& matrix : matrices)
                                     if (matrix.offset < end && first < matrix.end())
                                       flops += matrix.flops;
                                   return flops;
                                 });
  }

  /// Updates what a rank has to, and brings it to where it is computed with.
  void end_update(int u) {
    Update update = std::move(updates_[u]);
    const auto make_ours = [&](int buffer) {
      update.ended.push_back(buffer);
      return buffer;
    };
    const int computed = computed_with(u);
    const std::int64_t element_bytes = computed_bytes();
    // Where `optimize` leaves what it has updated in the number of compute.
    int fresh = update.masters;
    int converted = -1;
    if (has_working_copies() && plan_.buffers[computed].space == plan_.updates)
      fresh = converted = computed;
    else if (has_working_copies() && (converts() || !updates_on_host()))
      fresh = converted = make_ours(make_part("updated", u, Category::parameters,
                                              updates_on_host() ? plan_.optimized : shared_part(),
                                              Segment::trained, element_bytes, plan_.updates));

    Action& action = emit(Kind::optimize, update_stream(), u, -1);
    action.elements = plan_.elements(u, plan_.optimized);
    action.part = plan_.optimized;
    const bool begins = converted >= 0 && !plan_.buffers[converted].persistent;
    use(action, Role::gradient_shard, update.gradients, Access::read);
    use(action, Role::shard, update.masters, Access::read_write);
    follow_clip(action);
    use(action, Role::parameters, converted, begins ? Access::write : Access::read_write);
    if (!plan_.first_moments.empty())
      use(action, Role::first_moment, plan_.first_moments[u], Access::read_write);
    if (!plan_.second_moments.empty())
      use(action, Role::second_moment, plan_.second_moments[u], Access::read_write);
    const bool on_device = policy_.offload == Offload::none;
    if (on_device) release_used(u, update.ended);

    if (update.masters != plan_.parameters[u] && fresh != update.masters)
      copy_trained(u, update.masters, plan_.parameters[u], plan_.optimized, model_.master_bytes);
    int spread = fresh;  // on the device, where ranks give it to each other
    if (is_on_host(fresh) && (!is_on_host(computed) || shares_updates())) {
      spread = is_on_host(computed)
                   ? make_ours(make_part("updated", u, Category::parameters, shared_part(),
                                         Segment::trained, element_bytes))
                   : computed;
      copy_trained(u, fresh, spread, plan_.optimized, element_bytes);
    }
    if (plan_.optimized == Part::rank) gather_updates(u, spread, Group::replicate);
    if (plan_.optimized != Part::whole && computed_ == Part::whole)
      gather_updates(u, spread, Group::shard);
    if (is_on_host(computed) && !is_on_host(spread))
      copy_trained(u, spread, computed, plan_.buffers[spread].part, element_bytes);
    if (!on_device) {
      ended_updates_.push_back({u, std::move(update.ended)});
      finish_updates(updates_early() ? units_behind
                                     : static_cast<std::size_t>(policy_.forward_prefetch.depth));
    }
  }

  /// Whoever updates less than it computes with gets the rest from others.
  void gather_updates(int u, int buffer, Group group) {
    if (ranks_of(group) == 1) return;
    Action& action =
        emit_collective(Kind::gather_updates, Stream::gather, u, group, ranks_of(group),
                        plan_.elements(u, whole_of(group)), computed_bytes());
    use(action, Role::shard, buffer, Access::read_write);
  }

  /// Ends those of `buffers` that are not ended by what compute did last with them.
  void release_used(int u, const std::vector<int>& buffers) {
    std::vector<int> used;
    for (int buffer : buffers)
      if (plan_.actions[last_use_[buffer]].stream != Stream::compute) used.push_back(buffer);
    release(u, used);
  }

  /// Updates on the host wait until it is known how the step went.
  void follow_clip(Action& action) {
    if (updates_on_host() && !updates_early())
      use(action, Role::host_sums, host_sums_, Access::read);
  }

  void finish_updates(std::size_t most) {
    while (ended_updates_.size() > most) {
      release_used(ended_updates_.front().first, ended_updates_.front().second);
      ended_updates_.pop_front();
    }
  }

  void optimize() {
    std::vector<int> left;
    for (int u = 0; u < units_; ++u)
      if (is_trained(u) && !updates_early()) left.push_back(u);
    std::size_t begun = 0;
    for (std::size_t i = 0; i < left.size(); ++i) {
      const std::size_t ahead = i + static_cast<std::size_t>(policy_.forward_prefetch.depth) + 1;
      for (; begun < std::min(ahead, left.size()); ++begun) begin_update(left[begun]);
      end_update(left[i]);
    }
    finish_updates(0);
    if (updates_on_host()) release_used(-1, {host_sums_});
  }

  // ---- programs

  void write_training_step() {
    clear_sums();
    for (int micro_batch : leaves()) {
      Tape tape = make_tape();
      const int last = units_ - 1;
      for (int u = 0; u < last; ++u) {
        forward(u, micro_batch, tape);
        send_away(u, tape);
      }
      if (last == 0) load(micro_batch, tape.batch);
      int gradient = -1;
      for (int u = last; u >= first_trained_; --u) {
        backward(u, micro_batch, tape, gradient);
        if (u == last) add_loss(tape.output[last], micro_batch);
        gradients_ready(u, micro_batch);
      }
    }
    finish_reductions(0);
    finish_on_host(0);
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
  int gather_masters(int u, int masters, Group group) {
    if (ranks_of(group) == 1) return masters;
    const int whole = make_part("gathered masters", u, Category::gathered, whole_of(group),
                                Segment::both, model_.master_bytes);
    Access access = Access::write;
    for (Segment segment : segments_of(u)) {
      Action& action =
          emit_collective(Kind::gather, Stream::gather, u, group, ranks_of(group),
                          plan_.elements(u, whole_of(group), segment), model_.master_bytes);
      action.segment = segment;
      use(action, Role::shard, masters, Access::read);
      use(action, Role::parameters, whole, access);
      access = Access::read_write;
    }
    return whole;
  }

  void write_export() {
    for (int u = 0; u < units_; ++u) {
      int masters = plan_.parameters[u];
      std::vector<int> ended;
      const auto make_ours = [&](int buffer) {
        if (buffer != masters) ended.push_back(buffer);
        return buffer;
      };
      if (is_on_host(masters)) masters = make_ours(copied(u, masters, "masters"));
      if (plan_.stored == Part::rank)
        masters = make_ours(gather_masters(u, masters, Group::replicate));
      if (plan_.stored != Part::whole)
        masters = make_ours(gather_masters(u, masters, Group::shard));
      Action& visit = emit(Kind::visit, Stream::compute, u, -1);
      use(visit, Role::parameters, masters, Access::read);
      release(u, ended);
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

  Part computed_ = Part::whole;  // that a rank has to compute with, or to gather from
  int first_trained_ = 0;        // unit: backward ends there
  std::vector<bool> checkpointed_;
  std::vector<int> last_use_;  // of each buffer: an action
  int host_sums_ = -1;

  std::unique_ptr<GatherSchedule> schedule_;  // where parameters are gathered at all
  int visit_ = 0;                             // that comes up or computes
  std::vector<int> gathered_;                 // of each unit, or -1 while it is released
  std::vector<int> uploaded_;                 // what it is gathered from, or -1
  std::vector<int> kept_;                     // part kept after forward, or -1
  std::vector<int> kept_parts_;               // of each unit: in how many parts it is kept
  std::vector<int> gradient_;                 // that the running micro-batch writes, or -1
  std::vector<std::map<TreeNode, int>> partial_;
  std::deque<Reduction> reductions_;  // under way, the oldest first
  std::map<int, Update> updates_;     // begun, of units
  // What compute has still to wait for, by unit.
  std::deque<std::pair<int, std::vector<int>>> ended_on_host_, ended_updates_;
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
  require(purpose != Purpose::train || std::any_of(model.units.begin(), model.units.end(),
                                                   [](const UnitDescription& unit) {
                                                     return unit.frozen_elements <
                                                            unit.parameter_elements;
                                                   }),
          "all parameters are frozen: nothing is left to train");
  return Writer(model, ranks, policy, purpose).write();
}

}  // namespace ostrakon::plan
