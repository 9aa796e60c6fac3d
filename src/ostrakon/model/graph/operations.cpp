// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/graph/operations.hpp>

#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/attention/key_ring.hpp>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/piece_tree.hpp>
#include <ostrakon/math/products/gemm.hpp>
#include <ostrakon/model/array_packer.hpp>
#include <ostrakon/model/graph/kernel.hpp>
#include <ostrakon/model/graph/lists.hpp>
#include <stdexcept>
#include <utility>

namespace ostrakon::model::graph {
namespace {

/// Copies each array to another of the same kind, or of the other type of numbers; or a weight, or
/// to a gradient, to which it may add.
template <class T>
void copy_of(const Exec& exec, const Arguments& a) {
  using C = compute_t<T>;
  if (a.reads() == 0) return math::copy<T>(exec, a.weight<T>(0), a.written<T>(0).flat());
  if (a.writes() == 0 && a.adds_gradients())
    return math::add_to<C>(exec, a.read_whole<C>(0).flat(), a.gradient<C>(0));
  if (a.writes() == 0) return math::copy<C>(exec, a.read_whole<C>(0).flat(), a.gradient<C>(0));
  for (int i = 0; i < a.reads(); ++i) {
    const Element from = a.place_read(i).element, to = a.place_written(i).element;
    if (from == Element::byte) throw std::logic_error("bytes of a value are not copied");
    if (from == Element::number)
      math::copy_rows<T, T>(exec, a.read<T>(i), a.written<T>(i));
    else if (to == Element::number)
      math::copy_rows<C, T>(exec, a.read<C>(i), a.written<T>(i));
    else
      math::copy_rows<C, C>(exec, a.read<C>(i), a.written<C>(i));
  }
}

/// The first two values: the second lies where the sum does, or is copied there.
template <class A>
void add_up(const Exec& exec, const Arguments& a) {
  const View<A**> sum = a.written<A>(0);
  if (a.read<A>(1).data() != sum.data()) math::copy_rows<A, A>(exec, a.read<A>(1), sum);
  math::add_to<A>(exec, a.read<A>(0).flat(), sum.flat());
}

/// body(its index, its elements in `all`, which has `ranks` parts with some of each) for each of
/// the arrays that `size` tells the elements of.
template <class A, class Size, class Body>
void for_each_array(View<A*> all, std::int64_t ranks, int arrays, const Size& size,
                    const Body& body) {
  const View<A**> parts = all.matrix(ranks, all.size() / ranks);
  std::int64_t begin = 0;
  for (int i = 0; i < arrays; ++i) {
    const std::int64_t end = begin + size(i) / ranks;
    body(i, parts.column_range(begin, end));
    begin = end;
  }
}

template <class A>
std::int64_t size_of(View<A**> matrix) {
  return matrix.rows() * matrix.columns();
}
/// The first elements of an array, in the shape of another.
template <class A, class B>
View<A**> shaped_like(View<B**> other, View<A*> array) {
  return array.matrix(other.rows(), other.columns());
}

template <class T>
GraphKernels kernels_of(const LeafShape& shape) {
  using C = compute_t<T>;
  const std::int64_t ranks = shape.tensor_ranks;
  GraphKernels kernels;
  kernels.copy = make_kernel(copy_of<T>);
  kernels.add_up = make_kernel([](const Exec& exec, const Arguments& a) {
    a.place_written(0).element == Element::sum ? add_up<C>(exec, a) : add_up<T>(exec, a);
  });
  kernels.remember = make_kernel([shape](const Exec& exec, const Arguments& a) {
    for (int i = 0; i < a.reads(); ++i)
      for_each_decoded(a, [&](const DecodedRun& run, std::int64_t row) {
        math::put_in_ring<T>(exec, run.position, a.read<T>(i).row_range(row, row + run.count),
                             of_sequence(a.written<T>(i), shape, run.sequence));
      });
  });
  kernels.hand_weights = make_kernel([](const Exec& exec, const Arguments& a) {
    const auto pieces = [&](int i) { return View<const T**>(a.weight_pieces<T>(i)); };
    for_each_array(
        a.written<T>(0).flat(), 1, a.weights(), [&](int i) { return size_of(pieces(i)); },
        [&](int i, View<T**> own) {
          math::copy_rows<T, T>(exec, pieces(i), shaped_like(pieces(i), own.flat()));
        });
  });
  kernels.give_gradients = make_kernel([](const Exec& exec, const Arguments& a) {
    const auto pieces = [&](int i) { return a.gradient_pieces<C>(i); };
    for_each_array(
        a.read<C>(0).flat(), 1, a.gradients(),
        [&](int i) { return a.leaves(i) * size_of(pieces(i)); },
        [&](int i, View<const C**> own) {
          const View<C**> sum = pieces(i);
          const View<const C**> leaves = own.flat().matrix(a.leaves(i), size_of(sum));
          const auto slot = [&](std::int64_t index) {
            return index == 0 ? sum
                              : shaped_like(sum, a.scratch<C>(0).range((index - 1) * size_of(sum),
                                                                       index * size_of(sum)));
          };
          math::sum_pieces(
              leaves.rows(),
              [&](std::int64_t to, std::int64_t leaf) {
                math::copy_rows<C, C>(exec, shaped_like(sum, leaves.row(leaf)), slot(to));
              },
              [&](std::int64_t from, std::int64_t to) {
                math::add_matrix<C>(exec, slot(from), slot(to));
              });
        });
  });
  kernels.take_weights = make_kernel([=](const Exec& exec, const Arguments& a) {
    for_each_array(
        a.read<T>(0).flat(), ranks, a.writes(), [&](int i) { return a.place_written(i).columns; },
        [&](int i, View<const T**> parts) {
          math::copy_rows<T, T>(exec, parts, shaped_like(parts, a.written<T>(i).flat()));
        });
  });
  kernels.join_gradients = make_kernel([=](const Exec& exec, const Arguments& a) {
    for_each_array(
        a.written<C>(0).flat(), ranks, a.reads(), [&](int i) { return a.place_read(i).columns; },
        [&](int i, View<C**> parts) {
          const std::int64_t leaves = a.leaves(i);
          const std::int64_t columns = a.place_read(i).columns / (leaves * ranks);
          const View<const C**> all = a.read<C>(i).flat().matrix(leaves * ranks, columns);
          for (std::int64_t leaf = 0; leaf < leaves; ++leaf)
            math::copy_rows<C, C>(exec, all.row_range(leaf * ranks, (leaf + 1) * ranks),
                                  parts.column_range(leaf * columns, (leaf + 1) * columns));
        });
  });
  return kernels;
}

}  // namespace

template <class T>
Operations<T>::Operations(const LeafShape& leaf, const Recompute& recompute,
                          const std::vector<Parameter>& parameters, std::int64_t width, int inputs)
    : leaf_(leaf) {
  Setting& setting = graph_.setting;
  setting.number_bytes = static_cast<std::int64_t>(sizeof(T));
  setting.sum_bytes = static_cast<std::int64_t>(sizeof(Compute));
  setting.drops_norms = recompute.norms;
  setting.drops_attention = recompute.attention;
  setting.drops_mlp = recompute.mlp;
  setting.keeps_norm_outputs = !recompute.norm_outputs;
  setting.keeps_activations = !recompute.activations;
  setting.context_ranks = leaf.context_ranks;
  setting.pieces = leaf.tensor_pieces();
  setting.tensor_ranks = leaf.tensor_ranks;
  setting.chunks = leaf.tensor_chunks;
  setting.defers = leaf.defers_gradients;
  setting.decodes = leaf.decodes();
  setting.fuses = leaf.fuses;
  for (const Parameter& parameter : parameters) add_weight(parameter);
  graph_.kernels = kernels_of<T>(leaf);
  for (int i = 0; i < inputs && width > 0; ++i)
    graph_.inputs.push_back(add(i == 0 ? "x" : "x" + std::to_string(i), width, Distribution::rows));
}

template <class T>
Graph Operations<T>::take(std::vector<int> outputs) && {
  for (int& output : outputs) output = rows_of_rank(output);
  division_.gather_weights(graph_);
  graph_.outputs = std::move(outputs);
  return std::move(graph_);
}

template <class T>
void Operations<T>::append(Operation operation) {
  for (Calls* calls : {&operation.forward, &operation.backward})
    for (Call& call : *calls) call.name = prefix_ + call.name;
  if (operation.recompute) operation.recompute->name = prefix_ + operation.recompute->name;
  set_pieces(graph_, operation);
  graph_.operations.push_back(std::move(operation));
}

template <class T>
int Operations<T>::add(const std::string& name, std::int64_t columns, Distribution over, Keep keep,
                       Element element) {
  Value value{prefix_ + name, leaf_.rows(), columns};
  value.keep = keep;
  value.element = element;
  if (graph_.setting.pieces > 1) {
    value.tensor_distribution = over;
    if (over == Distribution::rows) value.rows = leaf_.own_rows();
    if (over == Distribution::columns) value.pieces = leaf_.own_pieces();
  }
  return graph_.add(std::move(value));
}

template <class T>
int Operations<T>::add_for(int x, const std::string& name, std::int64_t columns, Keep keep,
                           Element element) {
  const int made = add(name, columns, value(x).tensor_distribution, keep, element);
  graph_.values.back().rows = value(x).rows;
  graph_.values.back().per_row = value(x).per_row;
  graph_.values.back().is_per_run = value(x).is_per_run;
  return made;
}

template <class T>
int Operations<T>::add_state(const std::string& name, std::int64_t rows, std::int64_t columns,
                             Element element) {
  const int made = add(name, columns, Distribution::columns, Keep::always, element);
  graph_.values.back().rows = leaf_.batch * rows;
  graph_.values.back().is_cached = true;
  return made;
}

template <class T>
std::vector<int> Operations<T>::columns(const std::vector<std::string>& names,
                                        const std::vector<std::int64_t>& columns) {
  const int group = graph_.add_group(0);
  std::int64_t& end = graph_.group_columns[static_cast<std::size_t>(group)];
  std::vector<int> made;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::int64_t own = columns[i] / leaf_.tensor_pieces();
    made.push_back(add(names[i], own, Distribution::columns));
    graph_.values.back().group = group;
    graph_.values.back().first_column = end;
    end += own;
  }
  return made;
}

template <class T>
int Operations<T>::add_among_columns(int x, const std::string& name) {
  Value made = value(x);
  made.name = name;
  return graph_.add(std::move(made));
}

template <class T>
int Operations<T>::rows_of_rank(int x) {
  const int rows = redistribute(x, Distribution::rows);
  if (rows == x || value(rows).element == Element::number) return rows;
  return round_sum(rows, name_of(x) + " rounded");
}

template <class T>
int Operations<T>::round_sum(int sum, const std::string& made, const std::string& bias, int onto) {
  const int rows = redistribute(sum, Distribution::rows);
  const int y = add_for(rows, made, columns_of(rows));
  Call forward{"round " + made, {rows}, {y}};
  if (weight(bias) >= 0) forward.weights = {whole_weight(bias, false)};
  Operation operation{{}, {}, {rows}};
  if (onto >= 0) {
    forward.reads.push_back(onto);
    operation.residuals = {onto, rows};
  }
  const bool adds = onto >= 0 || !forward.weights.empty();
  forward.kernel = make_kernel([](const Exec& exec, const Arguments& a) {
    const View<const Compute**> sums = a.read<Compute>(0);
    const View<T**> rounded = a.written<T>(0);
    if (const View<const T**> before = a.read<T>(1))
      return math::add_residual<T>(exec, before, sums, a.weight<T>(0), rounded);
    math::copy_rows<Compute, T>(exec, sums, rounded);
    if (const View<const T*> added = a.weight<T>(0)) math::add_bias<T>(exec, rounded, added);
  });
  operation.forward = {pass(std::move(forward), rows, (adds ? 3 : 2) * columns_of(rows))};
  append(std::move(operation));
  return y;
}

template <class T>
int Operations<T>::add_weight(const Parameter& parameter) {
  const auto w = static_cast<int>(graph_.weights.size());
  graph_.weights.push_back({prefix_ + parameter.name, parameter.offset, parameter.piece_elements(),
                            !parameter.frozen, false, parameter.piece_stride});
  weights_.emplace(graph_.weights.back().name, w);
  return w;
}

template <class T>
int Operations<T>::weight(const std::string& name) const {
  const auto found = weights_.find(prefix_ + name);
  return found == weights_.end() ? -1 : found->second;
}

template <class T>
std::vector<int> Operations<T>::weights_of(const std::string& name) const {
  const int w = weight(name + ".weight"), b = weight(name + ".bias");
  require(w >= 0, "unit has no parameter ", name, ".weight");
  return b >= 0 ? std::vector<int>{w, b} : std::vector<int>{w};
}

template <class T>
std::vector<int> Operations<T>::whole_weights_of(const std::string& name, std::int64_t leaves) {
  std::vector<int> weights = weights_of(name);
  for (int& w : weights) w = division_.whole_weight(graph_, w, true, leaves);
  return weights;
}

template <class T>
plan::KernelWork Operations<T>::row_work(int x, std::int64_t columns, double kernels) const {
  return plan::row_work(static_cast<double>(bytes_of<T>(value(x).rows * columns)), kernels);
}

template <class T>
Call Operations<T>::pass(Call call, int x, std::int64_t columns) const {
  call.work = row_work(x, columns);
  return call;
}

/// A product of (m, k) and (k, n) takes 2 m n k.
template <class T>
Call Operations<T>::product(Call call, int x, std::int64_t inputs, std::int64_t outputs) const {
  call.flops = 2.0 * static_cast<double>(value(x).rows) * static_cast<double>(inputs * outputs);
  call.work = plan::product_work(call.flops, inputs, outputs);
  return call;
}

template class Operations<float>;
template class Operations<double>;
template class Operations<bf16>;
template class Operations<fp16>;

}  // namespace ostrakon::model::graph
