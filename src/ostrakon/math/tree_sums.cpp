// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/convert_run.hpp>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/equal_sizes.hpp>
#include <ostrakon/math/nontemporal_stores.hpp>
#include <ostrakon/math/work_items.hpp>
#include <type_traits>

// Sums of pieces by the fixed binary tree.

namespace ostrakon::math {
namespace {

constexpr std::int64_t tree_run = 512;  // this many elements of all pieces fit a cache
constexpr std::int64_t narrow_run = 256;

/// Sums the rows of x into the first row. A node over n rows splits into the largest power of two
/// below n and the rest; adding neighbours at distance 1, 2, 4, ... makes exactly these nodes.
template <class T, class Space>
KOKKOS_FUNCTION void sum_pieces(View<T**, Space> x) {
  for (std::int64_t distance = 1; distance < x.rows(); distance *= 2)
    for (std::int64_t piece = 0; piece + distance < x.rows(); piece += 2 * distance) {
      const auto left = x.row(piece);
      const auto right = x.row(piece + distance);
      for (std::int64_t i = 0; i < x.columns(); ++i) left[i] += right[i];
    }
}

/// Sums the rows of x (narrow_run columns at most), converted to the wider type, in the same tree.
/// Complete nodes are kept on a stack until their right sibling is complete: after p rows there is
/// one for each set bit of p.
template <class T, class C = compute_t<T>>
void sum_narrow_pieces(HostView<T**> x, HostView<C*> sum) {
  constexpr int most_nodes = 32;
  const std::int64_t width = x.columns();
  C node[most_nodes][narrow_run];
  int nodes = 0;
  const auto add_last_two = [&] {
    const C* right = node[--nodes];
    C* left = node[nodes - 1];
    for (std::int64_t i = 0; i < width; ++i) left[i] += right[i];
  };
  for (std::int64_t piece = 0; piece < x.rows(); ++piece) {
    convert_run(x.row(piece).data(), node[nodes++], width);
    for (std::int64_t bit = piece; bit % 2 == 1; bit /= 2) add_last_two();
  }
  while (nodes > 1) add_last_two();
  std::copy(node[0], node[0] + width, sum.range(0, width).data());
}

/// Sums the rows of x into `sum`; clobbers x.
template <class T>
void add_up_pieces(HostView<T**> x, HostView<T*> sum) {
  std::int64_t left = 1;
  while (2 * left < x.rows()) left *= 2;
  for (std::int64_t first = 0; first < x.columns(); first += tree_run) {
    const std::int64_t width = smaller(tree_run, x.columns() - first);
    const HostView<T**> run = x.column_range(first, first + width);
    const HostView<T*> begin = run.row(0);
    const HostView<T*> to = sum.range(first, first + width);
    if (x.rows() == 1) {
      if (to.data() != begin.data()) std::copy(begin.data(), begin.data() + width, to.data());
      continue;
    }
    // The two halves of the tree are summed in place; the last addition writes to `sum`.
    const HostView<T**> other = run.row_range(left, x.rows());
    sum_pieces(run.row_range(0, left));
    sum_pieces(other);
    const HostView<T*> other_sum = other.row(0);
    for (std::int64_t i = 0; i < width; ++i) to[i] = begin[i] + other_sum[i];
  }
}

/// Adds the sum of the rows of x (narrow_run columns at most) to `sum`, or overwrites `sum` if
/// `stores`; clobbers x, except 16-bit elements.
template <class T, class C = compute_t<T>>
void add_pieces(HostView<T**> x, bool stores, HostView<C*> sum) {
  const std::int64_t width = x.columns();
  const auto add = [&](const C* total) {
    if (stores && sum.data() != total) std::copy(total, total + width, sum.data());
    if (stores) return;
    for (std::int64_t i = 0; i < width; ++i) sum[i] += total[i];
  };
  if constexpr (is_16bit<T>) {
    C total[narrow_run];
    sum_narrow_pieces(x, HostView<C*>(total, width));
    add(total);
  } else {
    sum_pieces(x);
    add(x.row(0).data());
  }
}

/// Two arrays that are still to be added, or one.
template <class C>
struct Halves {
  const C* left = nullptr;
  const C* right = nullptr;
};

/// Sums runs of rows at arbitrary addresses, at most tree_run elements, in the same tree. The rows
/// are unchanged.
template <class T>
class RunSums {
 public:
  using C = compute_t<T>;

  /// Returns the sums of the two halves of the tree over rows [begin, end), from element `first`
  /// on; valid until the next call.
  Halves<C> halves(const std::vector<const std::byte*>& rows, std::size_t begin, std::size_t end,
                   std::int64_t first, std::int64_t width) {
    const auto run = [&](std::size_t row) { return reinterpret_cast<const T*>(rows[row]) + first; };
    if constexpr (!is_16bit<T>)
      if (end - begin == 2) return {run(begin), run(begin + 1)};
    width_ = width;
    nodes_ = 0;
    for (std::size_t pair = 0; begin + 2 * pair < end; ++pair) {
      const T* const left = run(begin + 2 * pair);
      C* const node = node_[nodes_++];
      if (begin + 2 * pair + 1 < end)
        add(left, run(begin + 2 * pair + 1), node);
      else
        convert_run(left, node, width_);
      const bool is_last = begin + 2 * pair + 2 >= end;
      for (std::size_t bit = pair; bit % 2 == 1 && !(is_last && nodes_ == 2); bit /= 2)
        add_last_two();
    }
    while (nodes_ > 2) add_last_two();
    return {node_[0], nodes_ == 2 ? node_[1] : nullptr};
  }

 private:
  void add(const T* left, const T* right, C* node) const {
    if constexpr (is_16bit<T>) {
      C other[tree_run];
      convert_run(left, node, width_);
      convert_run(right, other, width_);
      for (std::int64_t i = 0; i < width_; ++i) node[i] += other[i];
    } else {
      for (std::int64_t i = 0; i < width_; ++i) node[i] = left[i] + right[i];
    }
  }
  void add_last_two() {
    const C* const right = node_[--nodes_];
    C* const left = node_[nodes_ - 1];
    for (std::int64_t i = 0; i < width_; ++i) left[i] += right[i];
  }

  static constexpr int most_nodes = 32;
  C node_[most_nodes][tree_run];
  int nodes_ = 0;
  std::int64_t width_ = 0;
};

/// sum = the sum of the halves; it may not overlap them.
template <class C>
void add_halves(const Halves<C>& halves, C* sum, std::int64_t width) {
  if (halves.right == nullptr)
    std::copy(halves.left, halves.left + width, sum);
  else
    for (std::int64_t i = 0; i < width; ++i) sum[i] = halves.left[i] + halves.right[i];
}

void require_pieces(std::int64_t pieces) {
  require(pieces >= 1, "tree_sum: ", pieces, " pieces, expected at least 1");
}

/// Sums one vector of each row of x by the tree, in registers: rows are read in blocks of eight,
/// which are complete nodes of the tree, and the blocks' sums are kept by level until their right
/// sibling is complete.
template <class T, int n, int levels>
class VectorTree {
 public:
  using C = compute_t<T>;

  /// sum = the tree over rows [begin, end) of the vector at column `first`.
  KOKKOS_INLINE_FUNCTION static void sum(const View<const T**>& x, std::int64_t begin,
                                         std::int64_t end, std::int64_t first, Vector<C, n>& sum) {
    if constexpr (levels == 0) {
      sum_block(x, begin, static_cast<int>(end - begin), first, sum);
    } else {
      Vector<C, n> waiting[levels] = {};
      std::int64_t blocks = 0;
      for (std::int64_t row = begin; row < end; row += block_rows, ++blocks) {
        sum_block(x, row, static_cast<int>(smaller(block_rows, end - row)), first, sum);
        if (row + block_rows >= end) break;
        bool carries = true;
        for (int level = 0; level < levels; ++level) {
          const bool full = (blocks >> level & 1) == 1;
          if (carries && full) add(waiting[level], sum, sum);
          if (carries && !full) waiting[level] = sum;
          carries = carries && full;
        }
      }
      for (int level = 0; level < levels; ++level)
        if ((blocks >> level & 1) == 1) add(waiting[level], sum, sum);
    }
  }

  static constexpr std::int64_t block_rows = 8;

 private:
  KOKKOS_INLINE_FUNCTION static void add(const Vector<C, n>& left, const Vector<C, n>& right,
                                         Vector<C, n>& sum) {
    for (int j = 0; j < n; ++j) sum.at[j] = left.at[j] + right.at[j];
  }

  KOKKOS_INLINE_FUNCTION static void sum_block(const View<const T**>& x, std::int64_t row, int rows,
                                               std::int64_t first, Vector<C, n>& sum) {
    Vector<C, n> node[block_rows] = {};
    for (int piece = 0; piece < block_rows; ++piece) {
      if (piece >= rows) continue;
      const auto values = load_lanes<n>(x.data() + (row + piece) * x.stride(), first, x.columns());
      for (int j = 0; j < n; ++j) node[piece].at[j] = static_cast<C>(values.at[j]);
    }
    for (int distance = 1; distance < block_rows; distance *= 2)
      for (int piece = 0; piece + distance < block_rows; piece += 2 * distance)
        if (piece + distance < rows) add(node[piece], node[piece + distance], node[piece]);
    sum = node[0];
  }
};

template <class T, int levels>
void sum_chain(const Exec& exec, const View<const T**>& parts, std::int64_t tree, bool continues,
               const View<compute_t<T>*>& total) {
  using C = compute_t<T>;
  constexpr int n = vector_elements<C>();
  const View<const T**> x = parts;
  const View<C*> to = total;
  for_each_item(
      exec, "chain_sum", items_for(to.size(), n), KOKKOS_LAMBDA(std::int64_t item) {
        const std::int64_t first = item * n;
        Vector<C, n> sum = {};
        if (continues) sum = load_lanes<n>(to.data(), first, to.size());
        for (std::int64_t piece = 0; piece < x.rows(); piece += tree) {
          Vector<C, n> of_tree = {};
          VectorTree<T, n, levels>::sum(x, piece, smaller(piece + tree, x.rows()), first, of_tree);
          if (piece == 0 && !continues)
            sum = of_tree;
          else
            for (int j = 0; j < n; ++j) sum.at[j] += of_tree.at[j];
        }
        store_lanes<n>(to.data(), first, to.size(), sum);
      });
}

}  // namespace

template <class T>
void tree_sum(const Exec& exec, View<T**> x) {
  require_pieces(x.rows());
  constexpr std::int64_t run = per_item(tree_run);
  for_each_item(
      exec, "tree_sum", items_for(x.columns(), run), KOKKOS_LAMBDA(std::int64_t item) {
        const std::int64_t first = item * run;
        sum_pieces(x.column_range(first, smaller(first + run, x.columns())));
      });
}

template <class T>
void host::tree_sum(HostView<T**> x, HostView<compute_t<T>*> sum) {
  require_pieces(x.rows());
  require_equal_sizes("tree_sum", x.columns(), sum.size());
  if constexpr (is_16bit<T>) {
    for (std::int64_t first = 0; first < sum.size(); first += narrow_run) {
      const std::int64_t end = smaller(first + narrow_run, sum.size());
      sum_narrow_pieces(x.column_range(first, end), sum.range(first, end));
    }
  } else {
    add_up_pieces(x, sum);
  }
}

template <class T>
void host::chain_sum(HostView<T**> x, int tree, bool continues, HostView<compute_t<T>*> sum) {
  const std::int64_t pieces = x.rows();
  require_pieces(pieces);
  require_equal_sizes("chain_sum", x.columns(), sum.size());
  require(tree >= 1, "chain_sum: trees over ", tree, " pieces, expected at least 1");
  if (tree >= pieces && !continues) return tree_sum(x, sum);
  for (std::int64_t first = 0; first < sum.size(); first += narrow_run) {
    const std::int64_t end = smaller(first + narrow_run, sum.size());
    const HostView<T**> run = x.column_range(first, end);
    for (std::int64_t piece = 0; piece < pieces; piece += tree)
      add_pieces(run.row_range(piece, smaller(piece + tree, pieces)), piece == 0 && !continues,
                 sum.range(first, end));
  }
}

template <class T>
void host::chain_sum(const std::vector<const std::byte*>& rows, int tree, bool continues,
                     HostView<compute_t<T>*> sum) {
  using C = compute_t<T>;
  require_pieces(static_cast<std::int64_t>(rows.size()));
  require(tree >= 1, "chain_sum: trees over ", tree, " pieces, expected at least 1");
  const auto of_tree = static_cast<std::size_t>(tree);
  const bool goes_past = std::is_same<C, float>::value &&
                         use_nontemporal(sum.size() * static_cast<std::int64_t>(sizeof(C)));
  RunSums<T> of_run;
  C total[tree_run], added[tree_run];
  for (std::int64_t first = 0; first < sum.size(); first += tree_run) {
    const std::int64_t width = smaller(tree_run, sum.size() - first);
    C* const to = sum.range(first, first + width).data();
    Halves<C> all = {continues ? to : nullptr, nullptr};
    for (std::size_t begin = 0; begin < rows.size(); begin += of_tree) {
      const std::size_t end = std::min(begin + of_tree, rows.size());
      const Halves<C> halves = of_run.halves(rows, begin, end, first, width);
      if (all.left == nullptr) {
        all = halves;
        if (end == rows.size()) break;
      } else {
        add_halves(halves, added, width);
        all.right = added;
        if (end == rows.size()) break;
      }
      // all.left may be `total` itself.
      if (all.left == total)
        for (std::int64_t i = 0; i < width; ++i) total[i] += added[i];
      else
        add_halves(all, total, width);
      all = {total, nullptr};
    }
    // The destination may be one of the rows.
    if constexpr (std::is_same<C, float>::value) {
      if (goes_past) {
        add_nontemporal(all.left, all.right, to, width);
        continue;
      }
    }
    if (all.right != nullptr) {
      add_halves(all, added, width);
      all.left = added;
    }
    std::copy(all.left, all.left + width, to);
  }
  if (goes_past) fence_nontemporal();
}

template <class T>
void chain_sum(const Exec& exec, View<const T**> x, std::int64_t tree, bool continues,
               View<compute_t<T>*> sum) {
  const std::int64_t pieces = x.rows();
  require_pieces(pieces);
  require_equal_sizes("chain_sum", x.columns(), sum.size());
  require(tree >= 1, "chain_sum: trees over ", tree, " pieces, expected at least 1");
  // The number of levels in registers is a template argument, small for usual numbers of ranks.
  constexpr int some = 4, most = 16;
  const std::int64_t of_tree = smaller(tree, pieces), block = 8;
  require(of_tree <= block << most, "chain_sum: trees over ", of_tree, " pieces, expected at most ",
          block << most);
  if (of_tree <= block)
    sum_chain<T, 0>(exec, x, tree, continues, sum);
  else if (of_tree <= block << some)
    sum_chain<T, some>(exec, x, tree, continues, sum);
  else
    sum_chain<T, most>(exec, x, tree, continues, sum);
}

#define OSTRAKON_INSTANTIATE(T)                                                        \
  template void host::tree_sum<T>(HostView<T**>, HostView<compute_t<T>*>);             \
  template void host::chain_sum<T>(HostView<T**>, int, bool, HostView<compute_t<T>*>); \
  template void host::chain_sum<T>(const std::vector<const std::byte*>&, int, bool,    \
                                   HostView<compute_t<T>*>);
OSTRAKON_FOR_ALL_NUMBERS(OSTRAKON_INSTANTIATE)
#undef OSTRAKON_INSTANTIATE

template void tree_sum<float>(const Exec&, View<float**>);
template void tree_sum<double>(const Exec&, View<double**>);
#define OSTRAKON_INSTANTIATE(T) \
  template void chain_sum<T>(const Exec&, View<const T**>, std::int64_t, bool, View<compute_t<T>*>);
OSTRAKON_INSTANTIATE(float)
OSTRAKON_INSTANTIATE(bf16)
OSTRAKON_INSTANTIATE(fp16)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::math
