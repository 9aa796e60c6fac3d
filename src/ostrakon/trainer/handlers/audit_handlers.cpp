// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/trainer/handlers/audit_handlers.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <ostrakon/base/hash.hpp>
#include <ostrakon/math/digest.hpp>
#include <ostrakon/math/transfer.hpp>
#include <ostrakon/trainer/dispatch_dtype.hpp>
#include <ostrakon/trainer/handlers/action_parts.hpp>
#include <utility>
#include <vector>

namespace ostrakon::train {

using plan::Kind;
using plan::Role;
using runtime::ActionBuffers;

namespace {

/// Returns the digests by number in plans, which stands before those of each rank; nothing if some
/// rank has none.
std::vector<std::vector<std::uint64_t>> table_of(const std::vector<std::uint64_t>& rows,
                                                 std::size_t ranks) {
  const std::size_t width = rows.size() / ranks;
  std::vector<std::vector<std::uint64_t>> digests(ranks);
  for (auto row = rows.begin(); row != rows.end(); row += static_cast<std::ptrdiff_t>(width))
    if (*row < ranks) digests[*row].assign(row + 1, row + static_cast<std::ptrdiff_t>(width));
  if (std::any_of(digests.begin(), digests.end(), [](const auto& row) { return row.empty(); }))
    digests.clear();
  return digests;
}

}  // namespace

void agree_on(AuditTable& table, comm::Communicator& world) {
  Hasher hasher;
  for (const std::vector<std::uint64_t>& row : table.digests)
    for (const std::uint64_t digest : row) hasher.add(digest);
  // Halves of the hash are exact as doubles. They are equal on all ranks where their maximum is
  // their minimum.
  const auto low = static_cast<double>(hasher.value() & 0xffffffffU);
  const auto high = static_cast<double>(hasher.value() >> 32U);
  std::array<double, 4> extremes = {low, -low, high, -high};
  world.all_reduce_max(extremes.data(), static_cast<int>(extremes.size()));
  if (extremes[0] != -extremes[1] || extremes[2] != -extremes[3]) table.digests.clear();
}

AuditHandlers::AuditHandlers(StepContext& context, comm::Communicator& world, DType compute)
    : context_(context), world_(world), compute_(compute) {}

void AuditHandlers::install(runtime::Executor& executor) {
  executor.on(Kind::digest, this, &AuditHandlers::digest);
  executor.on(Kind::audit, this, &AuditHandlers::audit);
}

void AuditHandlers::digest(const ActionBuffers& buffers) {
  const plan::Action& action = buffers.action;
  const plan::StepPlan& plan = context_.plan();
  const auto all = buffers.device_view<std::uint64_t>(Role::digests);
  const bool begins = std::any_of(action.uses.begin(), action.uses.end(), [](const plan::Use& use) {
    return use.role == Role::digests && use.access == plan::Access::write;
  });
  if (begins) math::clear(buffers.exec, all);
  const bool is_audited = action.micro_batch < 0 || plan.is_again(action) ||
                          action.micro_batch == context_.audit.micro_batch;
  if (!is_audited) return;
  const auto sum = all.range(action.digest, action.digest + 1);
  switch (plan.digests[static_cast<std::size_t>(action.digest)].what) {
    case plan::Digest::What::stored:
    case plan::Digest::What::stored_after:
      return digest_stored(buffers, sum);
    case plan::Digest::What::read:
      return digest_parameters(buffers, sum);
    case plan::Digest::What::gradient: {
      const auto gradients = buffers.device_view<float>(Role::parameter_gradients);
      return math::add_digest(buffers.exec, gradients.range(0, action.elements), 0, 0, sum);
    }
  }
}

/// Adds the digests of the flat parameters that a unit has read.
void AuditHandlers::digest_parameters(const ActionBuffers& buffers, View<std::uint64_t*> sum) {
  const plan::StepPlan& plan = context_.plan();
  const plan::PlannedUnit& unit = plan.units[static_cast<std::size_t>(buffers.action.unit)];
  const plan::Spans& gathered = unit.layouts.gathered.divided;
  const ActionParts parts(buffers, context_);
  dispatch_dtype(compute_, [&](auto one) {
    using T = decltype(one);
    for (int flat = unit.flats.first; flat < unit.flats.end; ++flat)
      math::add_digest_as<T, T>(
          buffers.exec, parts.view<T, OnDevice>(Role::parameters, flat, gathered),
          static_cast<std::uint64_t>(flat), plan.first_element(flat, gathered, context_.rank), sum);
  });
}

/// Adds the digests of what this rank stores of a unit, as it is gathered.
void AuditHandlers::digest_stored(const ActionBuffers& buffers, View<std::uint64_t*> sum) {
  const plan::StepPlan& plan = context_.plan();
  const plan::PlannedUnit& unit = plan.units[static_cast<std::size_t>(buffers.action.unit)];
  const plan::Spans& part = unit.layouts.compute.divided;
  const bool converts = unit.layouts.compute.element_bytes != unit.layouts.gathered.element_bytes;
  const ActionParts parts(buffers, context_);
  const auto add = [&](auto stored, auto sent) {
    using A = decltype(stored);
    using B = decltype(sent);
    for (int flat = unit.flats.first; flat < unit.flats.end; ++flat)
      math::add_digest_as<A, B>(buffers.exec, parts.view<A, OnDevice>(Role::shard, flat, part),
                                static_cast<std::uint64_t>(flat),
                                plan.first_element(flat, part, context_.rank), sum);
  };
  dispatch_dtype(compute_, [&](auto one) {
    if (converts)
      add(float(), one);
    else
      add(one, one);
  });
}

/// Gathers the digests of all ranks, and notes whether they agree: `clip`, which comes next on this
/// stream, lets nothing be updated if they don't.
void AuditHandlers::audit(const ActionBuffers& buffers) {
  const auto own = buffers.host_view<std::uint64_t>(Role::digests);
  const auto width = static_cast<std::size_t>(own.size()) + 1;  // and the rank's number in plans
  const auto ranks = static_cast<std::size_t>(world_.size());
  std::vector<std::uint64_t> mine(width), all(width * ranks);
  mine.front() = static_cast<std::uint64_t>(context_.rank);
  std::copy_n(own.data(), own.size(), mine.data() + 1);
  // They travel as pairs of floats, whose bits nobody computes with.
  const auto floats = [](std::vector<std::uint64_t>& integers) {
    return HostView<float*>(reinterpret_cast<float*>(integers.data()),
                            2 * static_cast<std::int64_t>(integers.size()));
  };
  world_.all_gather<float, OnHost>(buffers.exec, floats(mine), floats(all));
  AuditTable table{context_.audit, table_of(all, ranks)};
  agree_on(table, world_);
  context_.audit_differs = !judge(context_.plan(), {table}).empty();
  context_.audit_tables.push_back(std::move(table));
  // Parameters that have changed in an earlier run of the step look sound in this one.
  if (!context_.audit_differs)
    context_.audit_differs = damages_state(judge(context_.plan(), context_.audit_tables));
}

}  // namespace ostrakon::train
