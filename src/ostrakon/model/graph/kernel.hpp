// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <ostrakon/math/half.hpp>
#include <ostrakon/math/view.hpp>
#include <ostrakon/model/graph/program.hpp>
#include <ostrakon/model/unit.hpp>
#include <stdexcept>
#include <utility>

namespace ostrakon::model::graph {

/// The buffers of a unit's call, as bytes, by Home; and its weights and their gradients.
struct Buffers {
  std::array<View<std::byte*>, 9> homes;
  View<std::byte*> trained, frozen, gradients;
  View<std::byte*> tied_trained, tied_frozen, tied_gradients;
  bool gradients_opened = false;  ///< gradients are added to what a tied unit has written
  View<const std::int32_t*> tokens, targets;
  std::int64_t part = 0;       ///< UnitBuffers::part
  View<std::int64_t*> counts;  ///< UnitBuffers::counts
  double loss_scale = 1.0;

  View<std::byte*> in(Home home) const { return homes[static_cast<std::size_t>(home)]; }
};

/// What a kernel works with: the values, weights and scratch arrays of its call, by their index
/// there, as views. Where a sequence is decoded, `rows` are the tokens that are computed, and
/// matrices that are read and written have their rows alone.
class Arguments {
 public:
  Arguments(const PlacedCall& call, const Program& program, const Buffers& buffers, RowRange rows,
            bool decodes)
      : call_(call), program_(program), buffers_(buffers), rows_(rows), decodes_(decodes) {}

  RowRange rows() const { return rows_; }
  std::int64_t part() const { return buffers_.part; }
  bool adds() const { return call_.call.adds; }
  const Buffers& buffers() const { return buffers_; }

  int reads() const { return static_cast<int>(call_.reads.size()); }
  int writes() const { return static_cast<int>(call_.writes.size()); }
  const Place& place_read(int i) const { return at(call_.reads, i); }
  const Place& place_written(int i) const { return at(call_.writes, i); }

  template <class A>
  View<const A**> read(int i) const {
    return in_range(View<const A**>(matrix<A>(place_read(i))), place_read(i));
  }
  template <class A>
  View<A**> written(int i) const {
    return in_range(matrix<A>(place_written(i)), place_written(i));
  }
  /// The value with all of its rows, whichever of them are computed.
  template <class A>
  View<const A**> read_whole(int i) const {
    return matrix<A>(place_read(i));
  }
  /// Neighbouring columns of one array as one matrix: values [first, first + count).
  template <class A>
  View<const A**> read_joined(int first, int count) const {
    return in_range(View<const A**>(matrix<A>(joined<A>(call_.reads, first, count))),
                    place_read(first));
  }
  template <class A>
  View<A**> written_joined(int first, int count) const {
    return in_range(matrix<A>(joined<A>(call_.writes, first, count)), place_written(first));
  }
  template <class A>
  View<const A**> read_joined_whole(int first, int count) const {
    return matrix<A>(joined<A>(call_.reads, first, count));
  }

  /// A weight; none, if the call has fewer.
  template <class A>
  View<const A*> weight(int i) const {
    if (i >= static_cast<int>(call_.call.weights.size())) return {};
    const int w = at(call_.call.weights, i);
    if (w < 0) return matrix<A>(at(call_.weights, i)).flat();
    const Weight& weight = at(program_.weights, w);
    const View<std::byte*> own = weight.trained ? buffers_.trained : buffers_.frozen;
    const View<std::byte*> tied = weight.trained ? buffers_.tied_trained : buffers_.tied_frozen;
    return part_of<A>(weight.tied ? tied : own, weight.offset, weight.elements);
  }
  /// The gradient of one; none, if it is not trained.
  template <class A>
  View<A*> gradient(int i) const {
    if (i >= static_cast<int>(call_.call.gradients.size())) return {};
    const int w = at(call_.call.gradients, i);
    if (w == Call::none) return {};
    if (w < 0) return matrix<A>(at(call_.gradients, i)).flat();
    const Weight& weight = at(program_.weights, w);
    return part_of<A>(weight.tied ? buffers_.tied_gradients : buffers_.gradients, weight.offset,
                      weight.elements);
  }
  template <class A>
  View<A*> scratch(int i) const {
    const Place& place = at(call_.scratch, i);
    if (place.columns == 0) return {};
    return view_as<A>(
        buffers_.in(Home::workspace).range(place.offset, place.offset + place.columns));
  }
  /// Bytes of a value; none where its buffer does not exist.
  View<std::byte*> bytes(const Place& place) const {
    return buffers_.in(place.home).range(place.offset, place.offset + place.columns);
  }

 private:
  template <class Item>
  static const Item& at(const std::vector<Item>& items, int i) {
    return items[static_cast<std::size_t>(i)];
  }
  template <class A>
  View<A**> matrix(const Place& place) const {
    const View<std::byte*> home = buffers_.in(place.home);
    if (!home) return View<A*>().matrix(place.rows, place.columns);
    const auto size = static_cast<std::int64_t>(sizeof(A));
    const std::int64_t elements = (place.rows - 1) * place.stride + place.columns;
    const View<A*> all = view_as<A>(home.range(place.offset, place.offset + elements * size));
    return {all.data(), place.rows, place.columns, place.stride, all.origin()};
  }
  template <class A>
  View<A**> in_range(View<A**> all, const Place& place) const {
    if (!decodes_ || !all) return all;
    return place.is_cached ? all.row_range(rows_.begin, rows_.end)
                           : all.row_range(0, std::min(place.rows, rows_.end - rows_.begin));
  }
  template <class A>
  static View<A*> part_of(View<std::byte*> segment, std::int64_t offset, std::int64_t elements) {
    const auto size = static_cast<std::int64_t>(sizeof(A));
    return view_as<A>(segment.range(offset * size, (offset + elements) * size));
  }
  template <class A>
  static Place joined(const std::vector<Place>& places, int first, int count) {
    Place all = at(places, first);
    for (int i = first + 1; i < first + count; ++i) {
      const Place& next = at(places, i);
      const auto end = all.offset + all.columns * static_cast<std::int64_t>(sizeof(A));
      if (next.home != all.home || next.stride != all.stride || next.offset != end)
        throw std::logic_error("columns that a kernel takes as one matrix are not neighbours");
      all.columns += next.columns;
    }
    return all;
  }

  const PlacedCall& call_;
  const Program& program_;
  const Buffers& buffers_;
  RowRange rows_;
  bool decodes_;
};

/// What computes a call. Holds sizes and no arrays.
class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual void run(const Exec& exec, const Arguments& arguments) const = 0;
};

/// A kernel of a function (exec, arguments).
template <class Function>
std::shared_ptr<const Kernel> make_kernel(Function function) {
  struct OfFunction final : Kernel {
    explicit OfFunction(Function f) : function(std::move(f)) {}
    void run(const Exec& exec, const Arguments& arguments) const override {
      function(exec, arguments);
    }
    Function function;
  };
  return std::make_shared<OfFunction>(std::move(function));
}

}  // namespace ostrakon::model::graph
