// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <ostrakon/plan/step_plan.hpp>

namespace ostrakon::plan {
namespace {

class Hasher {
 public:
  /// Strings, numbers and enumerators.
  template <class... Values>
  void add(const Values&... values) {
    (add_one(values), ...);
  }
  std::uint64_t value() const { return state_; }

 private:
  void add_one(const std::string& value) {
    for (char c : value) step(static_cast<unsigned char>(c));
    step(0xff);
  }
  template <class Value>
  void add_one(Value value) {
    const auto number = static_cast<std::int64_t>(value);
    for (int i = 0; i < 8; ++i) step(static_cast<unsigned char>(number >> (8 * i)));
  }
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
    case Kind::recompute:
      return "recompute";
    case Kind::keep:
      return "keep";
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
    case Kind::direction:
      return "direction";
    case Kind::orthogonalize:
      return "orthogonalize";
    case Kind::optimize:
      return "optimize";
    case Kind::gather_updates:
      return "gather_updates";
    case Kind::copy_to_device:
      return "copy_to_device";
    case Kind::copy_to_host:
      return "copy_to_host";
    case Kind::visit:
      return "visit";
  }
  return "?";
}

bool communicates(Kind kind) {
  return kind == Kind::gather || kind == Kind::reduce_scatter || kind == Kind::gather_gradients ||
         kind == Kind::gather_updates;
}

const char* name(Stream stream) {
  switch (stream) {
    case Stream::compute:
      return "compute";
    case Stream::gather:
      return "gather";
    case Stream::reduce:
      return "reduce";
    case Stream::upload:
      return "upload";
    case Stream::download:
      return "download";
    case Stream::host:
      return "host";
  }
  return "?";
}

const char* name(Group group) {
  switch (group) {
    case Group::shard:
      return "shard";
    case Group::replicate:
      return "replicate";
    case Group::kept:
      return "kept";
  }
  return "?";
}

const char* name(Space space) { return space == Space::device ? "device" : "host"; }

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
  if (action.segment == Segment::frozen) text += ", frozen";
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

std::int64_t StepPlan::bytes_sent(const Action& action) const {
  if (!communicates(action.kind)) return 0;
  return action.elements * action.element_bytes / action.group_ranks * (action.group_ranks - 1);
}

std::int64_t StepPlan::bytes_sent(Group group) const {
  std::int64_t bytes = 0;
  for (const Action& action : actions)
    if (action.group == group) bytes += bytes_sent(action);
  return bytes;
}

std::int64_t StepPlan::bytes_sent() const {
  return bytes_sent(Group::shard) + bytes_sent(Group::replicate) + bytes_sent(Group::kept);
}

double StepPlan::flops() const {
  double total = 0.0;
  for (const Action& action : actions) total += action.flops;
  return total;
}

bool StepPlan::has_the_bits_of_one_rank() const {
  // One rank rounds no gradient.
  if (std::any_of(actions.begin(), actions.end(), [&](const Action& action) {
        return action.kind == Kind::reduce_scatter && action.element_bytes != master_bytes;
      }))
    return false;
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
  hasher.add(purpose, ranks, group_ranks, stored, optimized, updates, accumulation, micro_batches,
             element_bytes, master_bytes);
  for (std::int64_t elements : padded_elements) hasher.add(elements);
  for (std::int64_t elements : padded_frozen) hasher.add(elements);
  for (const std::vector<WholeMatrix>& matrices : whole_matrices) {
    hasher.add(matrices.size());
    for (const WholeMatrix& matrix : matrices) hasher.add(matrix.offset, matrix.elements);
  }
  for (const Buffer& buffer : buffers)
    hasher.add(buffer.name, buffer.bytes, buffer.space, buffer.persistent, buffer.part,
               buffer.segment);
  for (const Action& action : actions) {
    hasher.add(action.kind, action.stream, action.group, action.group_ranks, action.unit,
               action.micro_batch, action.elements, action.element_bytes, action.converts,
               action.segment, action.part, action.gradients_opened);
    hasher.add(action.uses.size());
    for (const Use& used : action.uses) hasher.add(used.role, used.buffer, used.access);
    hasher.add(action.waits.size());
    for (int wait : action.waits) hasher.add(wait);
  }
  return hasher.value();
}

}  // namespace ostrakon::plan
