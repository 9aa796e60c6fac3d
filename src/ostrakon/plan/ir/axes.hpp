// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <ostrakon/base/names.hpp>

namespace ostrakon::plan {

/// A dimension along which a step is divided: the micro-batches of a rank, and dimensions of ranks.
enum class Axis {
  micro_batch,  ///< leaves that a rank computes one after the other; no dimension of ranks
  tensor,       ///< ranks that each have a part of every unit's parameters, and compute a leaf
                ///< together
  shard,        ///< ranks that share one replica of the model
  replicate,    ///< replicas of the model
  pipeline,     ///< stages: ranks that each have some of the units, and pass activations on
  /// Tensor ranks together with their neighbours along shard, as ranks are numbered. It has no size
  /// of its own; exchanges between both are along it.
  tensor_shard
};
constexpr Named<Axis> axis_names[] = {{Axis::micro_batch, "micro_batch"},
                                      {Axis::tensor, "tensor"},
                                      {Axis::shard, "shard"},
                                      {Axis::replicate, "replicate"},
                                      {Axis::pipeline, "pipeline"},
                                      {Axis::tensor_shard, "tensor_shard"}};
constexpr const char* name(Axis axis) { return name_in(axis_names, axis); }
/// The number of axes that have sizes of their own.
constexpr int axes = static_cast<int>(Axis::tensor_shard);

/// Ranks along an axis, or a part of it: `ranks` of them, each `stride` ranks after the one before.
/// {axis, size} are all ranks of an axis; {axis, N} is a run of N neighbours; {axis, size / N, N}
/// is one rank of each such run. The ranks of an axis fall into equal groups of this form.
struct Span {
  Axis axis = Axis::shard;
  int ranks = 1;
  int stride = 1;

  friend constexpr bool operator==(const Span& a, const Span& b) {
    return a.axis == b.axis && a.ranks == b.ranks && a.stride == b.stride;
  }
  friend constexpr bool operator!=(const Span& a, const Span& b) { return !(a == b); }
};

/// Whether a span of Grid::levels is the second level, one rank of each node.
constexpr bool is_across_nodes(const Span& level) { return level.stride > 1; }

/// The spans that an array is divided over, outer to inner: into equal parts over the first span,
/// each of these over the second, and so on. Empty: every rank has the whole. Spans of one rank are
/// left out.
class Spans {
 public:
  constexpr Spans() = default;
  constexpr Spans(std::initializer_list<Span> spans) {
    for (const Span& span : spans) push(span);
  }

  /// Throws std::logic_error where there are more than a plan ever has.
  constexpr void push(const Span& span);
  constexpr void push(const Spans& spans) {
    for (const Span& span : spans) push(span);
  }
  /// Returns all but the innermost span.
  constexpr Spans outer() const {
    Spans spans = *this;
    --spans.size_;
    return spans;
  }
  constexpr const Span& innermost() const { return spans_[size_ - 1]; }

  constexpr int size() const { return size_; }
  constexpr bool empty() const { return size_ == 0; }
  constexpr const Span* begin() const { return spans_.data(); }
  constexpr const Span* end() const { return spans_.data() + size_; }
  /// Whether the array is divided over `axis` or a part of it.
  constexpr bool has(Axis axis) const {
    for (const Span& span : *this)
      if (span.axis == axis) return true;
    return false;
  }
  /// Whether the first spans are those of `outer`.
  constexpr bool starts_with(const Spans& outer) const {
    if (outer.size_ > size_) return false;
    for (int i = 0; i < outer.size_; ++i)
      if (spans_[i] != outer.spans_[i]) return false;
    return true;
  }
  /// The number of parts.
  constexpr std::int64_t parts() const {
    std::int64_t parts = 1;
    // GCC 12 vectorizes a loop to size_ for AVX-512 and then warns of elements not set.
    for (int i = 0; i < most; ++i)
      if (i < size_) parts *= spans_[i].ranks;
    return parts;
  }

  friend constexpr bool operator==(const Spans& a, const Spans& b) {
    return a.size_ == b.size_ && a.starts_with(b);
  }
  friend constexpr bool operator!=(const Spans& a, const Spans& b) { return !(a == b); }

 private:
  static constexpr int most = 5;  // small, as plans have some hundred thousand Spans
  std::array<Span, most> spans_{};
  int size_ = 0;
};

[[noreturn]] void refuse_spans();

constexpr void Spans::push(const Span& span) {
  if (span.ranks == 1) return;
  if (size_ == most) refuse_spans();
  spans_[static_cast<std::size_t>(size_++)] = span;
}

/// The sizes of all axes in a step. Ranks are numbered along the axes of ranks in the order of Axis
/// (or with shard_first, shard before tensor), the first one fastest: neighbours compute together,
/// then share a replica of the model, and the ranks of a stage are neighbours.
struct Grid {
  std::array<std::int64_t, axes> sizes;
  /// Neighbouring ranks of a node, if collectives that span nodes have two levels: inside the nodes
  /// and across them. 0: one level.
  int node = 0;
  /// Neighbouring ranks that read each other's memory in collectives. 0: none.
  int window = 0;
  /// Whether the ranks along shard are neighbours, and tensor ranks are apart.
  bool shard_first = false;

  Grid() { sizes.fill(1); }
  Grid(std::int64_t micro_batches, int shard, int replicate, int stages = 1, int tensor = 1)
      : Grid() {
    sizes[static_cast<std::size_t>(Axis::micro_batch)] = micro_batches;
    sizes[static_cast<std::size_t>(Axis::tensor)] = tensor;
    sizes[static_cast<std::size_t>(Axis::shard)] = shard;
    sizes[static_cast<std::size_t>(Axis::replicate)] = replicate;
    sizes[static_cast<std::size_t>(Axis::pipeline)] = stages;
  }

  std::int64_t size(Axis axis) const {
    return axis == Axis::tensor_shard ? size(Axis::tensor) * size(Axis::shard)
                                      : sizes[static_cast<std::size_t>(axis)];
  }
  int ranks() const { return ranks_of_stage() * stages(); }
  int tensor() const { return static_cast<int>(size(Axis::tensor)); }
  int shard() const { return static_cast<int>(size(Axis::shard)); }
  int replicas() const { return static_cast<int>(size(Axis::replicate)); }
  int stages() const { return static_cast<int>(size(Axis::pipeline)); }
  int ranks_of_stage() const { return stride(Axis::pipeline); }
  std::int64_t micro_batches() const { return size(Axis::micro_batch); }

  /// The span of all ranks along an axis.
  Span span(Axis axis) const { return {axis, static_cast<int>(size(axis))}; }
  /// The span of an axis as one or two levels. Sums are made over the first level, then the second;
  /// gathers take them in reverse order.
  Spans levels(Axis axis) const { return levels(span(axis)); }
  /// The levels of a run of neighbours: if it spans nodes, first the ranks of each node, then one
  /// rank of each.
  Spans levels(const Span& run) const;
  /// Whether any axis has two levels.
  bool has_levels() const {
    return levels(Axis::shard).size() > 1 || levels(Axis::replicate).size() > 1;
  }
  /// The difference in rank number of neighbours along an axis, or in a span.
  int stride(Axis axis) const {
    if (shard_first && axis == Axis::tensor) return shard();
    if ((shard_first && axis == Axis::shard) || axis == Axis::tensor_shard) return 1;
    std::int64_t stride = 1;
    for (int a = static_cast<int>(Axis::micro_batch) + 1; a < static_cast<int>(axis); ++a)
      stride *= sizes[static_cast<std::size_t>(a)];
    return static_cast<int>(stride);
  }
  int stride(const Span& span) const { return span.stride * stride(span.axis); }
  /// Whether all ranks of each group of a span read each other's memory.
  bool has_window(const Span& span) const {
    if (span.axis == Axis::micro_batch || span.axis == Axis::pipeline || window == 0) return false;
    return window % (stride(span) * span.ranks) == 0;
  }
  /// The position of a rank along an axis of ranks, and among the ranks of a span.
  int coordinate(int rank, Axis axis) const {
    return rank / stride(axis) % static_cast<int>(size(axis));
  }
  int coordinate(int rank, const Span& span) const {
    return coordinate(rank, span.axis) / span.stride % span.ranks;
  }
};

/// Returns the levels of an axis without its first `ranks` neighbours, for which one rank stands.
/// Throws Error where these are no part of the levels.
Spans without_first(const Spans& levels, int ranks);

/// Returns how many ranks of a run along an axis are on each node of `ranks_per_node` ranks. 1
/// where the run is inside a node, or the counts of nodes differ.
int neighbours_on_node(const Grid& grid, const Span& run, int ranks_per_node);

}  // namespace ostrakon::plan
