// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/graph/program.hpp>

#include <algorithm>
#include <cstddef>
#include <ostrakon/model/graph/passes.hpp>
#include <utility>

namespace ostrakon::model::graph {

namespace {

bool can_add_gradients(const Call& call, const Program& program) {
  if (!call.parts.empty())
    return std::all_of(call.parts.begin(), call.parts.end(),
                       [&](const Call& part) { return can_add_gradients(part, program); });
  return std::all_of(call.gradients.begin(), call.gradients.end(), [&](int gradient) {
    return !Call::is_weight(gradient) ||
           (call.can_add_gradients && !program.weights[static_cast<std::size_t>(gradient)].tied);
  });
}

/// Whether all calls with gradients of weights can add these to what is there, and there are any.
bool all_can_add_gradients(const Program& program) {
  bool has_any = false;
  for (const auto& phase : program.backward)
    for (const PlacedCall& placed : phase) {
      if (!can_add_gradients(placed.call, program)) return false;
      has_any = has_any || placed.call.writes_gradients();
    }
  return has_any;
}

}  // namespace

Program derive(Graph graph, const std::set<int>& kept) {
  Listing listing = differentiate(std::move(graph));
  double gradient_flops = 0.0;
  for (const Call& call : listing.backward) gradient_flops += call.flops - call.repeated_flops;
  keep(listing);
  if (listing.graph.setting.defers) defer(listing);
  listing.kept.insert(kept.begin(), kept.end());
  order(listing);
  divide_rows(listing);
  if (listing.graph.setting.fuses) fuse(listing);
  const std::set<int> phases = find_phases(listing);
  Program program = place(std::move(listing), phases);
  program.gradient_flops = gradient_flops;
  program.can_add_gradients = all_can_add_gradients(program);
  return program;
}

}  // namespace ostrakon::model::graph
