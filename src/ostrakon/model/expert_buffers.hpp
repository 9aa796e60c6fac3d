// SPDX-License-Identifier: Apache-2.0
#pragma once

// What lies in the buffers of an ExpertUnit, for its sources.

#include <algorithm>
#include <ostrakon/math/piece_tree.hpp>
#include <ostrakon/math/products/gemm.hpp>
#include <ostrakon/model/expert_unit.hpp>

namespace ostrakon::model {

/// Arrays that only one rank writes begin at multiples of this, and so do the parts of exchanges.
template <class T>
std::int64_t padded(std::int64_t bytes) {
  return round_up(bytes, buffer_alignment<T>);
}

/// What one rank sends to another in a round, `capacity` rows: of forward x; of backward all.
template <class T>
struct ExpertUnit<T>::Sent {
  View<T**> x;             // (capacity, width)
  View<T**> dy;            // (capacity, width), gradient of the combined output
  View<Compute*> weights;  // (capacity)
  std::int64_t bytes;

  Sent(const ExpertUnit& unit, Pass pass, View<std::byte*> buffer) {
    Arrays<T> arrays(buffer);
    const std::int64_t capacity = unit.rounds_.capacity;
    x = arrays.matrix(capacity, unit.dispatch_.width);
    if (pass == Pass::backward) {
      dy = arrays.matrix(capacity, unit.dispatch_.width);
      weights = arrays.template take<Compute>(capacity);
    }
    bytes = arrays.size();
  }
};

/// What comes back: of forward the experts' output, of backward the gradient of x and of weights.
template <class T>
struct ExpertUnit<T>::Returned {
  View<T**> rows;           // (capacity, width)
  View<Compute*> dweights;  // (capacity)
  std::int64_t bytes;

  Returned(const ExpertUnit& unit, Pass pass, View<std::byte*> buffer) {
    Arrays<T> arrays(buffer);
    rows = arrays.matrix(unit.rounds_.capacity, unit.dispatch_.width);
    if (pass == Pass::backward) dweights = arrays.template take<Compute>(unit.rounds_.capacity);
    bytes = arrays.size();
  }
};

/// In the workspace, from the first phase to the last.
template <class T>
struct ExpertUnit<T>::Workspace {
  View<std::int64_t*> offsets;  // (ranks, MoeDispatchLayout::offsets())
  View<T**> returned;           // (assignments, width), by slot
  View<T**> up;                 // (capacity, up.outputs)
  View<T**> activated;          // (capacity, expert width)
  View<T*> padding;             // of products by row
  // backward
  View<T**> dmade, dbeside;  // (rows, width), of the unit behind, if it takes x apart
  View<Compute*> dweights;   // (assignments)
  View<T**> dactivated;      // (capacity, expert width)
  View<T**> weighted;        // (capacity, width), dy times weights
  View<Compute*> gradients;  // (ranks - 1, a rank's trained elements), of the rows of each rank
                             // but the first, whose are in the unit's gradients
  View<Compute*> leaves;     // (ranks, tree_slots - 1, an expert's), of leaves that wait
  std::int64_t bytes;

  Workspace(const ExpertUnit& unit, Pass pass, View<std::byte*> buffer) {
    Arrays<T> arrays(buffer);
    const MoeDispatchLayout& dispatch = unit.dispatch_;
    const std::int64_t capacity = unit.rounds_.capacity, ranks = unit.ranks_;
    const auto padding_of = [&](const Layer& layer) {
      return math::gemm_by_row_workspace<T>(layer.inputs, layer.outputs,
                                            math::rows_of_a_product_in<T>(unit.kernels_));
    };
    offsets = arrays.template take<std::int64_t>(ranks * dispatch.offsets());
    returned = arrays.matrix(dispatch.assignments(), dispatch.width);
    up = arrays.matrix(capacity, unit.up_.outputs);
    activated = arrays.matrix(capacity, unit.inner_);
    padding = arrays.template take<T>(std::max(padding_of(unit.up_), padding_of(unit.down_)));
    if (pass == Pass::backward && dispatch.is_apart) {
      dmade = arrays.matrix(dispatch.rows, dispatch.width);
      dbeside = arrays.matrix(dispatch.rows, dispatch.width);
    }
    if (pass == Pass::backward) {
      dweights = arrays.template take<Compute>(dispatch.assignments());
      dactivated = arrays.matrix(capacity, unit.inner_);
      weighted = arrays.matrix(capacity, dispatch.width);
      gradients = arrays.template take<Compute>((ranks - 1) * unit.own_ * unit.trained_elements_);
      leaves = arrays.template take<Compute>(ranks * (math::tree_slots(dispatch.leaves) - 1) *
                                             unit.trained_elements_);
    }
    bytes = arrays.size();
  }
};

}  // namespace ostrakon::model
