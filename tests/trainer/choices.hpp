// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/covering.hpp"
#include "trainer/small_runs.hpp"

namespace ostrakon::tests {

/// Applies the choices of a row that change no bit: those of the factors named here.
inline void apply_policy(const NamedRow& row, config::Settings& settings) {
  plan::PolicyChoices& policy = settings.parallel;
  row.apply("sharding", [&](int c) { policy.sharding = all_shardings[c]; });
  row.apply("over",
            [&](int c) { policy.shard_optimizer_over = static_cast<plan::OptimizerGroup>(c); });
  row.apply("offload", [&](int c) { policy.offload = static_cast<plan::Offload>(c); });
  row.apply("host_activations", [&](int c) { policy.offload_activations = c == 1; });
  row.apply("checkpointing", [&](int c) {
    policy.activation_checkpointing.every = c < 3 ? c : 0;
    if (c >= 3) settings.recompute = {c == 3, true, c == 3};
  });
  row.apply("reshard", [&](int c) {
    policy.reshard_after_forward.kind = static_cast<plan::Reshard::Kind>(c);
    policy.reshard_after_forward.ranks = 2;
  });
  row.apply("prefetch",
            [&](int c) { policy.forward_prefetch.depth = policy.backward_prefetch.depth = c; });
  row.apply("reductions", [&](int c) { policy.in_flight_reductions = c; });
  row.apply("accumulation",
            [&](int c) { policy.accumulation = static_cast<plan::Accumulation>(c); });
  row.apply("order", [&](int c) { policy.leaf_order = static_cast<plan::LeafOrder>(c); });
  row.apply("updates", [&](int c) { policy.updates = static_cast<plan::Updates>(c); });
  row.apply("blocks", [&](int c) { settings.model.blocks_per_unit = 1 + c; });
  row.apply("streams", [&](int c) {
    settings.runtime.streams = c == 0 ? config::StreamsChoice::in_plan_order : on_threads;
  });
}

}  // namespace ostrakon::tests
