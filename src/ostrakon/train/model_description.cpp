// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/train/model_description.hpp>

#include <algorithm>
#include <ostrakon/optim/muon.hpp>
#include <ostrakon/train/dispatch_dtype.hpp>

namespace ostrakon::train {
namespace {

/// Floating-point operations to orthogonalize a matrix.
double orthogonalize_flops(std::int64_t rows, std::int64_t columns, int iterations) {
  const auto smaller = static_cast<double>(std::min(rows, columns));
  const auto larger = static_cast<double>(std::max(rows, columns));
  // Three products an iteration: with the transpose, that with itself, and with the matrix.
  const double flops = 2.0 * smaller * smaller * (2.0 * larger + smaller);
  return iterations * flops;
}

}  // namespace

plan::ModelDescription describe(const model::Model& model,
                                const optim::OptimizerSettings& optimizer) {
  plan::ModelDescription description = model.description();
  description.master_bytes = sizeof(float);
  description.sums_bytes = step_sums * sizeof(std::int64_t);
  for (int u = 0; u < model.units(); ++u) {
    plan::UnitDescription& unit = description.units[u];
    for (const model::Parameter& parameter : model.parameters(u)) {
      if (parameter.frozen || optim::rule_of(optimizer, parameter) != optim::OptimizerKind::muon)
        continue;
      const std::int64_t rows = parameter.shape[0], columns = parameter.shape[1];
      unit.whole_matrices.push_back(
          {parameter.offset, parameter.elements(),
           orthogonalize_flops(rows, columns, optimizer.muon_iterations)});
      unit.orthogonalize_workspace_bytes = std::max(
          unit.orthogonalize_workspace_bytes, optim::orthogonalize_workspace<float>(rows, columns));
    }
    std::sort(unit.whole_matrices.begin(), unit.whole_matrices.end(),
              [](const auto& a, const auto& b) { return a.offset < b.offset; });
  }
  return description;
}

}  // namespace ostrakon::train
