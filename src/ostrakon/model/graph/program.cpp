// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/graph/program.hpp>

#include <ostrakon/model/graph/passes.hpp>
#include <utility>

namespace ostrakon::model::graph {

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
  return program;
}

}  // namespace ostrakon::model::graph
