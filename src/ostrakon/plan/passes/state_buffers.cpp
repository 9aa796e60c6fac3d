// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/passes/state_buffers.hpp>

#include <ostrakon/plan/ir/matrices.hpp>

namespace ostrakon::plan {
namespace {

/// Bytes that this rank saves: each rank saves the part that no other one does.
std::int64_t checkpoint_bytes(const StepPlan& plan, const Policy& policy,
                              std::int64_t moment_bytes) {
  const std::int64_t master_bytes = plan.layouts.masters.element_bytes;
  const std::int64_t of_trained =
      policy.moment_count * moment_bytes + (policy.averages ? master_bytes : 0);
  std::int64_t bytes = 0;
  for (int u = 0; u < static_cast<int>(plan.units.size()); ++u) {
    // Saved state is divided over all ranks, as gradients are.
    const Spans& all_ranks = plan.units[u].layouts.gradient.divided;
    if (plan.units[u].tied_stages.source < 0)
      bytes += plan.elements(plan.units[u].flats, all_ranks) * master_bytes +
               plan.elements(plan.trained(u), all_ranks) * of_trained;
  }
  return bytes;
}

}  // namespace

void make_state_buffers(Builder& builder, const Policy& policy) {
  const StepPlan& plan = builder.plan();
  const bool is_run = plan.purpose != Purpose::decode;
  const std::int64_t moment_bytes =
      bytes_of(policy.moments.dtype) * (plan.layouts.masters.element_bytes / bytes_of(DType::fp32));
  const int moments = is_run ? policy.moment_count : 0;
  for (int u = 0; u < builder.units(); ++u) {
    PlannedUnit& state = builder.state(u);
    const Layouts& layouts = state.layouts;
    const FlatRange trained = plan.trained(u);
    const Layout moment{layouts.update.divided, layouts.update.space, moment_bytes};
    const bool is_borrowed = state.tied_stages.source >= 0;
    if (!is_borrowed)
      state.masters = builder.make_state("parameters", u, Category::parameters,
                                         layouts.frozen_without_masters ? trained : state.flats,
                                         layouts.masters);
    if (layouts.has_copies() || is_borrowed)
      state.compute_copy =
          builder.make_state("compute copy", u, Category::parameters, state.flats, layouts.compute);
    if (trained.empty() || is_borrowed) continue;
    if (moments > 0)
      state.first_moments =
          builder.make_state("first moment", u, Category::optimizer, trained, moment);
    if (moments > 1)
      state.second_moments = builder.make_state("second moment", u, Category::optimizer, trained,
                                                moment, most_outside_matrices(plan, u));
    if (is_run && policy.averages)
      state.averages =
          builder.make_state("average", u, Category::optimizer, trained, layouts.update);
  }
  const auto make = [&](const char* what, Category category, std::int64_t bytes, Space space) {
    const int made = builder.make_named(what, category, bytes, space);
    builder.make_persistent(made);
    return made;
  };
  // It persists, so that it lies in the same place in all plans.
  if (policy.product_workspace_bytes > 0)
    builder.note_product_workspace(make("workspace of products", Category::workspace,
                                        policy.product_workspace_bytes, Space::device));
  if (!is_run) return;
  builder.note_sums(make("sums", Category::other, builder.model().sums_bytes, Space::device));
  if (policy.checkpoint_staging)
    builder.note_checkpoint(make("checkpoint", Category::other,
                                 checkpoint_bytes(plan, policy, moment_bytes), Space::host));
}

}  // namespace ostrakon::plan
