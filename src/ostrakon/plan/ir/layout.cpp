// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/ir/layout.hpp>

#include <algorithm>
#include <ostrakon/plan/ir/sum_order.hpp>

namespace ostrakon::plan {

Spans unit_spans(const Grid& grid, int parts) {
  return {grid.span(Axis::tensor), {Axis::shard, parts}};
}

Spans matrix_spans(const Grid& grid, const Layouts& of_unit) {
  return grid.tensor() > 1 && of_unit.cuts_matrices ? Spans{}
                                                    : unit_spans(grid, of_unit.expert_ranks);
}

Layouts layouts_of_unit(const Layouts& layouts, const Grid& grid, const UnitDescription& unit) {
  const int parts = unit.expert_ranks;
  Layouts table = layouts;
  table.expert_ranks = parts;
  table.cuts_matrices = unit.cuts_matrices;
  if (parts == 1) return table;
  for (Layout* layout :
       {&table.masters, &table.compute, &table.gathered, &table.gradient, &table.update}) {
    const Spans divided = layout->divided;
    layout->divided = unit_spans(grid, parts);
    if (divided.has(Axis::shard))
      layout->divided.push(without_first(grid.levels(Axis::shard), parts));
    if (divided.has(Axis::replicate)) layout->divided.push(grid.levels(Axis::replicate));
  }
  return table;
}

namespace {

/// The spans that parameters are divided over where they are gathered from.
Spans compute_spans(const Policy& policy, const Grid& grid) {
  Spans spans = unit_spans(grid);
  if (policy.sharding == Sharding::full) spans.push(grid.levels(Axis::shard));
  return spans;
}

/// The spans that divide the part which a rank updates.
Spans update_spans(const Policy& policy, const Grid& grid) {
  Spans spans = unit_spans(grid);
  if (policy.sharding == Sharding::none) return spans;
  spans.push(grid.levels(Axis::shard));
  if (policy.shard_optimizer_over == OptimizerGroup::world)
    spans.push(grid.levels(Axis::replicate));
  return spans;
}

/// The spans that summed gradients are divided over: all ranks.
Spans gradient_spans(const Grid& grid) {
  Spans spans = unit_spans(grid);
  spans.push(grid.levels(Axis::shard));
  spans.push(grid.levels(Axis::replicate));
  return spans;
}

/// Whether a model has frozen parameters; with pipeline stages, which all need the same layouts,
/// whether it may have some.
bool may_freeze(const Policy& policy, const ModelDescription& model) {
  return policy.stages > 1 ||
         std::any_of(model.units.begin(), model.units.end(),
                     [](const UnitDescription& unit) { return unit.frozen_elements > 0; });
}

}  // namespace

Layouts find_layouts(const Policy& policy, const ModelDescription& model, const Grid& grid,
                     Purpose purpose) {
  const bool is_run = purpose != Purpose::decode;
  const auto home = [&](Offload what) {
    return is_run && offloads(policy.offload, what) ? Space::host : Space::device;
  };
  const Space update_space = home(Offload::optimizer), copy_space = home(Offload::parameters);
  const Space master_space =
      is_run && policy.offload != Offload::none ? Space::host : Space::device;
  const Spans compute = compute_spans(policy, grid), update = update_spans(policy, grid);

  // Masters in the other memory need a copy to compute with. Masters in another dtype need one,
  // too, unless they are converted while they are gathered, which is done on the device. Frozen
  // parameters without masters have that copy alone.
  const bool are_apart = master_space != copy_space;
  const bool convert = model.element_bytes != model.master_bytes;
  const bool convert_in_gather = policy.sharding == Sharding::full && copy_space == Space::device;
  const bool drops_masters =
      is_run && convert && policy.frozen_without_masters && may_freeze(policy, model);
  const bool have_copies =
      is_run && (are_apart || (convert && !convert_in_gather) || drops_masters);

  Layouts layouts;
  // With compute copies, masters are needed only by the rank that updates them.
  layouts.masters = {have_copies ? update : compute, master_space, model.master_bytes};
  layouts.compute =
      have_copies ? Layout{compute, copy_space, model.element_bytes} : layouts.masters;
  layouts.gathered =
      is_run ? Layout{unit_spans(grid), Space::device, model.element_bytes} : layouts.compute;
  layouts.gradient = {gradient_spans(grid), update_space, model.master_bytes};
  layouts.update = {update, update_space, model.master_bytes};
  layouts.frozen_without_masters = drops_masters;
  layouts.reduce_element_bytes =
      policy.reduce == DType::fp32 ? model.master_bytes : bytes_of(policy.reduce);
  layouts.accumulation = accumulation_of(policy, grid);
  layouts.sum_grain = sum_grain_of(policy);
  layouts.summation = policy.summation;
  layouts.sharing_ranks = sharing_ranks(policy);
  layouts.leaves_at_once = model.leaves_at_once;
  layouts.sample_grain = model.sample_grain;
  layouts.tensor_grain = model.tensor_grain;
  layouts.splits_ties = model.splits_ties;
  const bool cuts_narrow_products =
      policy.context_ranks > 1 &&
      std::max<std::int64_t>(model.tensor_grain, model.tensor_ranks) > 1;
  layouts.cuts_16bit_products =
      (model.tensor_chunks > 1 || cuts_narrow_products) && model.element_bytes < model.master_bytes;
  layouts.updates_optimistically = trains(purpose) && policy.updates == Updates::optimistic;
  layouts.updates_early = policy.early_updates && layouts.update.space == Space::host;
  return layouts;
}

}  // namespace ostrakon::plan
