// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/ir/matrices.hpp>

#include <algorithm>

namespace ostrakon::plan {
namespace {

/// Returns the maximum of `of` over the equal parts that ranks update; `of` takes a part's first
/// element and its end. It changes only if a part has the begin or the end of a matrix at another
/// offset, so the parts near those represent all.
template <class Value, class Of>
Value most_of_parts(const StepPlan& plan, int unit, const Of& of) {
  const std::int64_t elements = plan.padded(plan.trained(unit));
  const std::int64_t part_elements = elements / plan.units[unit].layouts.update.divided.parts();
  std::vector<std::int64_t> edges = {0, elements};
  for (const WholeMatrix& matrix : plan.units[unit].whole_matrices) {
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

}  // namespace

std::int64_t most_outside_matrices(const StepPlan& plan, int unit) {
  return most_of_parts<std::int64_t>(plan, unit, [&](std::int64_t first, std::int64_t end) {
    std::int64_t outside = end - first;
    for (const WholeMatrix& matrix : plan.units[unit].whole_matrices)
      outside -=
          std::max<std::int64_t>(0, std::min(end, matrix.end()) - std::max(first, matrix.offset));
    return outside;
  });
}

double most_orthogonalize_flops(const StepPlan& plan, int unit) {
  return most_of_parts<double>(plan, unit, [&](std::int64_t first, std::int64_t end) {
    double flops = 0.0;
    for (const WholeMatrix& matrix : plan.units[unit].whole_matrices)
      if (matrix.offset < end && first < matrix.end()) flops += matrix.flops;
    return flops;
  });
}

}  // namespace ostrakon::plan
