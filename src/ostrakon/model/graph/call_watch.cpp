// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <ostrakon/model/graph/call_watch.hpp>

namespace ostrakon::model::graph {

double floor_bytes(const PlacedCall& call, const Program& program) {
  const Setting& setting = program.setting;
  const bool is_by_piece = call.call.is_by_piece;
  const auto of_place = [&](const Place& place) {
    return place.rows * place.columns * setting.element_bytes(place.element) *
           (is_by_piece ? 1 : place.pieces);
  };
  const auto of_weight = [&](int w) {
    return program.weights[static_cast<std::size_t>(w)].elements *
           (is_by_piece ? 1 : setting.own_pieces());
  };
  std::int64_t bytes = 0;
  for (const Place& read : call.reads) bytes += of_place(read);
  // The last of a fused kernel's values that lie at one place stays.
  for (std::size_t i = 0; i < call.writes.size(); ++i) {
    const auto is_here = [&](const Place& later) {
      return later.home == call.writes[i].home && later.offset == call.writes[i].offset;
    };
    if (std::none_of(call.writes.begin() + static_cast<std::ptrdiff_t>(i) + 1, call.writes.end(),
                     is_here))
      bytes += of_place(call.writes[i]);
  }
  for (std::size_t i = 0; i < call.call.weights.size(); ++i) {
    const int w = call.call.weights[i];
    bytes += Call::is_weight(w) ? of_weight(w) * setting.number_bytes : of_place(call.weights[i]);
  }
  for (std::size_t i = 0; i < call.call.gradients.size(); ++i) {
    const int w = call.call.gradients[i];
    if (w == Call::none) continue;
    if (is_value(w))
      bytes += of_place(call.gradients[i]);
    else
      bytes += setting.sum_bytes *
               (call.call.gradient_elements > 0 ? call.call.gradient_elements : of_weight(w));
  }
  return static_cast<double>(bytes);
}

}  // namespace ostrakon::model::graph
