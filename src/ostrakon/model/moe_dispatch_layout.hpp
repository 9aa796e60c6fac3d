// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <ostrakon/math/experts/routing.hpp>
#include <ostrakon/model/arrays.hpp>
#include <ostrakon/model/layer_settings.hpp>
#include <ostrakon/model/leaf_shape.hpp>
#include <ostrakon/model/unit.hpp>

namespace ostrakon::model {

/// Bytes from where y begins, (rows, width), or its gradient, to what passes to or from experts.
template <class T>
std::int64_t behind_y(std::int64_t rows, std::int64_t width) {
  return round_up(bytes_of<T>(rows * width), buffer_alignment<T>);
}

/// What passes between a block and its experts where these are a unit of their own (ExpertUnit),
/// and what has passed back: behind y and its gradient, which every block has. Of a tensor rank's
/// own rows. Shared experts are in y already where blocks are in tensor pieces, unless what experts
/// make is kept apart from y: then a unit behind them takes both, side by side (rows, 2 width).
struct MoeDispatchLayout {
  std::int64_t rows = 0, width = 0, leaves = 1;
  math::Router router;
  bool is_apart = false;  ///< whether y and what experts make are kept apart
  bool has_shared = false;

  MoeDispatchLayout() = default;
  MoeDispatchLayout(const ExpertSettings& experts, std::int64_t columns, const LeafShape& leaf,
                    bool is_apart_)
      : rows(leaf.own_rows()),
        width(columns),
        leaves(leaf.own_row_leaves()),
        router(experts.router()),
        is_apart(is_apart_),
        has_shared(experts.shared > 0 && (is_apart || leaf.tensor_pieces() == 1)) {}

  /// Assignments of all rows.
  std::int64_t assignments() const { return rows * router.per_token; }
  /// Columns of what experts hand on.
  std::int64_t columns_behind() const { return is_apart ? 2 * width : width; }
  /// Elements of Routes::offsets.
  std::int64_t offsets() const { return router.experts * leaves + 1; }

  /// What the block hands on besides y, which is x + attention then, and shared experts in pieces.
  template <class T>
  struct Rows {
    View<T**> normed;  ///< (rows, width), what experts multiply
    View<T**> shared;  ///< (rows, width), output of shared experts; none without such
    /// Without scores and `chosen`.
    math::Routes<compute_t<T>> routes;
    std::int64_t bytes = 0;
  };
  /// What it gets back besides the gradient of y.
  template <class T>
  struct Gradients {
    View<T**> shared;  ///< (rows, width); none if it is that of y, or without such experts
    View<compute_t<T>**> normed;   ///< (rows, width): sums over experts
    View<compute_t<T>*> dweights;  ///< (assignments)
    std::int64_t bytes = 0;
  };

  /// Bytes of a gradient that passes back: of y with what follows it, or from the unit behind.
  template <class T>
  std::int64_t gradient_bytes() const {
    return std::max(behind_y<T>() + gradients_in<T>({}).bytes,
                    bytes_of<T>(rows * columns_behind()));
  }

  /// Bytes from where y begins, or its gradient, to what follows it.
  template <class T>
  std::int64_t behind_y() const {
    return model::behind_y<T>(rows, width);
  }

  /// In what follows y; without a buffer their size alone.
  template <class T>
  Rows<T> rows_in(View<std::byte*> buffer) const {
    Arrays<T> arrays(buffer);
    Rows<T> all;
    all.normed = arrays.matrix(rows, width);
    if (has_shared) all.shared = arrays.matrix(rows, width);
    all.routes.weights = arrays.template take<compute_t<T>>(assignments());
    all.routes.slots = arrays.template take<std::int32_t>(assignments());
    all.routes.assignments = arrays.template take<std::int32_t>(assignments());
    all.routes.offsets = arrays.template take<std::int64_t>(offsets());
    all.bytes = arrays.size();
    return all;
  }
  template <class T>
  Gradients<T> gradients_in(View<std::byte*> buffer) const {
    Arrays<T> arrays(buffer);
    Gradients<T> all;
    if (has_shared && is_apart) all.shared = arrays.matrix(rows, width);
    all.normed = arrays.template take<compute_t<T>>(rows * width).matrix(rows, width);
    all.dweights = arrays.template take<compute_t<T>>(assignments());
    all.bytes = arrays.size();
    return all;
  }
};

}  // namespace ostrakon::model
