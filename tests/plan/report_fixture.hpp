// SPDX-License-Identifier: Apache-2.0
#pragma once

// Plans of a model whose sizes are known, with their reports.

#include <nlohmann/json.hpp>
#include <numeric>
#include <ostrakon/plan/report/report_json.hpp>
#include <ostrakon/plan/report/report_text.hpp>
#include <sstream>

#include "plan/checks.hpp"

namespace ostrakon::tests::reports {

/// Sizes that are multiples of what they are padded to for up to 8 ranks.
inline ModelDescription make_model(int blocks) {
  ModelDescription model;
  model.batch_bytes = 512;
  model.gradient_bytes = 2048;
  model.sums_bytes = 1280;
  for (int u = 0; u < blocks + 2; ++u) {
    UnitDescription unit;
    unit.name = u == 0 ? "embedding" : u == blocks + 1 ? "head" : "block." + std::to_string(u - 1);
    unit.parameter_elements = 512 * (u == 0 ? 7 : u == blocks + 1 ? 5 : 3);
    unit.output_bytes = u == blocks + 1 ? 256 : 2048;
    unit.saved_bytes = u == 0 || u == blocks + 1 ? 0 : 8192;
    unit.forward.front().workspace_bytes = 1024;
    unit.backward.front().workspace_bytes = u == 0 ? 0 : 3072;
    unit.forward.front().flops = 10.0 + u;
    unit.backward.front().flops = 100.0 + u;
    unit.backward_reads_parameters = u != 0;
    model.units.push_back(unit);
  }
  return model;
}

struct Planned {
  StepPlan plan;
  MemoryPlan memory;
  MemoryPlan host_memory;
  Report report;

  std::string text() const { return report_text(plan, report); }
  nlohmann::json json() const {
    std::stringstream stream;
    write_report_json(stream, plan, memory, host_memory, report);
    return nlohmann::json::parse(stream.str());
  }
};

inline Planned make(const ModelDescription& model, int ranks, const Policy& policy,
                    int ranks_per_node = 0, Purpose purpose = Purpose::train) {
  Planned planned;
  planned.plan = build_step_plan(model, ranks, policy, purpose);
  planned.memory = plan_memory(planned.plan);
  planned.host_memory = plan_memory(planned.plan, Space::host);
  planned.report = make_report(planned.plan, planned.memory, planned.host_memory, ranks_per_node);
  return planned;
}

inline Policy make_policy(Sharding sharding, std::int64_t leaves, int shard_group = 0) {
  Policy policy;
  policy.sharding = sharding;
  policy.leaves = leaves;
  policy.shard_group = shard_group;
  return policy;
}

inline std::int64_t sum(const CategoryBytes& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
}

/// Bytes of the units in fp32.
constexpr std::int64_t embedding = 4 * 512 * 7, block = 4 * 512 * 3, head = 4 * 512 * 5;

/// The blocks keep a half of what was gathered, one of them a quarter.
inline Policy keeping_policy(std::int64_t leaves, int shard_group = 0,
                             const std::string& quarter = "block.0") {
  Policy policy = make_policy(Sharding::full, leaves, shard_group);
  policy.reshard_after_forward = {Reshard::partly, 2};
  UnitRule rule;
  rule.pattern = quarter;
  rule.reshard_after_forward = Reshard{Reshard::partly, 4};
  policy.units = {rule};
  return policy;
}

inline Policy offloading_policy(Offload offload, std::int64_t leaves) {
  Policy policy = make_policy(Sharding::full, leaves);
  policy.offload = offload;
  policy.reshard_after_forward.kind = Reshard::always;
  return policy;
}

}  // namespace ostrakon::tests::reports
