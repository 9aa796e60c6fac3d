// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/passes/audit_pass.hpp>

#include <cstdint>

namespace ostrakon::plan {

using What = Digest::What;

AuditPass::AuditPass(Builder& builder, const GatherPass& gathers)
    : builder_(builder), gathers_(gathers), audits_(builder.plan().purpose == Purpose::audit) {}

void AuditPass::on(const Task& task, Tape& tape) {
  if (!audits_) return;
  if (task.computes()) add_read(task);
  if (task.work == Work::reduce || task.work == Work::digest) add_gradients(task, tape);
  if (task.work != Work::audit) return;
  add_stored(What::stored_after);
  compare();
}

void AuditPass::after(const Task& task) {
  if (!audits_) return;
  if (task.work == Work::begin) add_stored(What::stored);
  // Compute has waited for `clip`, which comes after `audit` on the host's stream.
  if (task.work == Work::clip) builder_.release(-1, {on_host_});
}

/// Writes an action that computes a digest of `elements` of a buffer.
void AuditPass::add(const Digest& digest, Role role, int buffer, int micro_batch,
                    std::int64_t elements) {
  const auto next = static_cast<int>(numbers_.size());
  const auto [known, is_new] = numbers_.try_emplace(
      {digest.what, digest.unit, digest.again, digest.computed, digest.by}, next);
  if (is_new) builder_.note_digest(digest);
  const bool begins = digests_ < 0;
  if (begins) digests_ = builder_.make_named("digests", Category::other, 0, Space::device);
  Action& action = builder_.emit(Kind::digest, digest.unit, micro_batch);
  action.digest = known->second;
  action.elements = elements;
  builder_.use(action, role, buffer, Access::read);
  builder_.use(action, Role::digests, digests_, begins ? Access::write : Access::read_write);
}

void AuditPass::add_stored(What what) {
  const StepPlan& plan = builder_.plan();
  for (int u = 0; u < builder_.units(); ++u) {
    const PlannedUnit& unit = plan.units[static_cast<std::size_t>(u)];
    if (unit.flats.empty()) continue;
    Digest digest;
    digest.what = what;
    digest.unit = u;
    add(digest, Role::shard, unit.compute(), -1,
        plan.elements(unit.flats, unit.layouts.compute.divided));
  }
}

void AuditPass::add_read(const Task& task) {
  const StepPlan& plan = builder_.plan();
  const bool is_forward = task.work == Work::forward;
  for (const ParameterUse& use : builder_.parameter_uses(task.unit)) {
    const PlannedUnit& owner = plan.units[static_cast<std::size_t>(use.unit)];
    if (owner.flats.empty() || !(is_forward || use.backward_reads)) continue;
    Digest digest;
    digest.what = What::read;
    digest.unit = use.unit;
    digest.again = task.micro_batch == plan.grid.micro_batches();
    digest.computed = task.unit;
    digest.by = is_forward ? Kind::forward : Kind::backward;
    add(digest, Role::parameters, gathers_.parameters(use.unit), task.micro_batch,
        plan.elements(owner.flats, owner.layouts.gathered.divided));
  }
}

void AuditPass::add_gradients(const Task& task, Tape& tape) {
  const StepPlan& plan = builder_.plan();
  for (const ParameterUse& use : builder_.parameter_uses(task.unit)) {
    int& gradients = tape.units[static_cast<std::size_t>(use.unit)]
                         .parameter_gradients[static_cast<std::size_t>(use.addend)];
    if (!use.completes_leaf || gradients < 0) continue;
    Digest digest;
    digest.what = What::gradient;
    digest.unit = use.unit;
    digest.again = task.work == Work::digest;
    digest.computed = use.addend;
    add(digest, Role::parameter_gradients, gradients, task.micro_batch,
        plan.elements(plan.trained(use.unit), builder_.state(use.unit).layouts.gathered.divided));
    if (digest.again) gradients = -1;  // nothing reduces them
  }
}

/// Compares the digests of all ranks on the host.
void AuditPass::compare() {
  const auto bytes = static_cast<std::int64_t>(numbers_.size() * sizeof(std::uint64_t));
  builder_.set_bytes(digests_, bytes);
  on_host_ = builder_.make_named("digests on host", Category::other, bytes, Space::host);
  builder_.copy_on(Stream::compute, -1, digests_, on_host_);
  Action& audit = builder_.emit(Kind::audit, -1);
  // Each rank also tells its number in plans.
  audit.elements = static_cast<std::int64_t>(numbers_.size() + 1) * builder_.plan().grid.ranks();
  audit.element_bytes = sizeof(std::uint64_t);
  builder_.use(audit, Role::digests, on_host_, Access::read_write);
}

}  // namespace ostrakon::plan
