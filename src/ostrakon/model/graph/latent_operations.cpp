// SPDX-License-Identifier: Apache-2.0
// Operations of multi-head latent attention and multi-token prediction: products of rows by whole
// weights, columns that are split and joined, and keys that are made of parts of each head and a
// part of all; in decoding queries and outputs times the weights that make keys and values.
#include <algorithm>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/products/gemm.hpp>
#include <ostrakon/model/graph/kernel.hpp>
#include <ostrakon/model/graph/operations.hpp>
#include <ostrakon/model/leaf_sums.hpp>
#include <utility>

namespace ostrakon::model::graph {
namespace {

using math::Transpose;

/// y = beta y + x op(W), in products of `run` rows: they are as long on any number of ranks, as 16
/// bits may depend on that.
template <class T>
void multiply_rows(const Exec& exec, Transpose transpose, std::int64_t run, View<const T**> x,
                   View<const T**> weight, compute_t<T> beta, View<T**> y) {
  for (std::int64_t first = 0; first < x.rows(); first += run) {
    const std::int64_t last = std::min(first + run, x.rows());
    math::gemm<T>(exec, Transpose::no, transpose, 1, x.row_range(first, last), weight, beta,
                  y.row_range(first, last));
  }
}

}  // namespace

template <class T>
int Operations<T>::row_linear(int of, const std::string& name, std::int64_t columns) {
  const int x = rows_of_rank(of);
  const std::int64_t inputs = columns_of(x), leaves = leaves_of(x);
  const std::int64_t run = leaf_.rows() / leaf_.tensor_pieces();
  const std::vector<int> weights = whole_weights_of(name);
  const int y = add_for(x, name, columns);
  Call forward = product({name, {x}, {y}, weights}, x, inputs, columns);
  forward.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    multiply_rows<T>(exec, Transpose::yes, run, a.read<T>(0),
                     a.weight<T>(0).matrix(columns, inputs), 0, a.written<T>(0));
  });
  Call weight = product({"d " + name + ".weight", {~y, x}, {}, {}, weights}, x, inputs, columns);
  weight.can_add_gradients = leaf_.can_add_gradients() && leaves == 1;
  weight.scratch = {bytes_of<Compute>(weight_sums_workspace(columns, inputs, leaves))};
  weight.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    sum_weight_gradient<T>(exec, a.read<T>(1), a.read<T>(0),
                           a.gradient<Compute>(0).matrix(columns, inputs),
                           {leaves, a.scratch<Compute>(0), {}, a.adds_gradients()});
  });
  Call input = product({"d " + name, {~y}, {~x}, weights}, x, inputs, columns);
  // Where queries take x, too, what it adds to may have come by an exchange.
  input.can_add = input.adds_from_anywhere = true;
  input.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    const View<T**> dx = a.written<T>(0);
    if (a.adds()) {
      const View<const T**> before = a.read<T>(a.reads() - 1);
      if (before.data() != dx.data()) math::copy_rows<T, T>(exec, before, dx);
    }
    multiply_rows<T>(exec, Transpose::no, run, a.read<T>(0), a.weight<T>(0).matrix(columns, inputs),
                     a.adds() ? 1 : 0, dx);
  });
  append({{forward}, {weight, input}});
  return y;
}

template <class T>
std::vector<int> Operations<T>::split(int x, const std::string& name,
                                      const std::vector<std::string>& names,
                                      const std::vector<std::int64_t>& columns) {
  Call forward{"split " + name, {x}, {}}, backward{"d split " + name, {}, {~x}};
  for (std::size_t i = 0; i < names.size(); ++i) {
    const int made = add_for(x, names[i], columns[i]);
    forward.writes.push_back(made);
    backward.reads.push_back(~made);
  }
  const std::vector<int> made = forward.writes;
  forward = pass(std::move(forward), x, 2 * columns_of(x));
  backward.work = forward.work;
  // Copies between all columns of one matrix and the matrices of its parts.
  forward.kernel = make_kernel([](const Exec& exec, const Arguments& a) {
    const View<const T**> whole = a.read<T>(0);
    for (std::int64_t i = 0, first = 0; i < a.writes(); ++i) {
      const View<T**> part = a.written<T>(static_cast<int>(i));
      math::copy_rows<T, T>(exec, whole.column_range(first, first + part.columns()), part);
      first += part.columns();
    }
  });
  backward.kernel = make_kernel([](const Exec& exec, const Arguments& a) {
    const View<T**> whole = a.written<T>(0);
    for (std::int64_t i = 0, first = 0; i < a.reads(); ++i) {
      const View<const T**> part = a.read<T>(static_cast<int>(i));
      math::copy_rows<T, T>(exec, part, whole.column_range(first, first + part.columns()));
      first += part.columns();
    }
  });
  append({{forward}, {backward}});
  return made;
}

template <class T>
int Operations<T>::join(int x, int y, const std::string& name) {
  const std::int64_t left = columns_of(x), all = left + columns_of(y);
  const int made = add_for(x, name, all, Keep::never);
  Call forward = pass({"join " + name, {x, y}, {made}}, x, 2 * all);
  Call backward{"d join " + name, {~made}, {~x, ~y}};
  backward.work = forward.work;
  forward.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    const View<T**> to = a.written<T>(0);
    math::copy_rows<T, T>(exec, a.read<T>(0), to.column_range(0, left));
    math::copy_rows<T, T>(exec, a.read<T>(1), to.column_range(left, all));
  });
  backward.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    const View<const T**> from = a.read<T>(0);
    math::copy_rows<T, T>(exec, from.column_range(0, left), a.written<T>(0));
    math::copy_rows<T, T>(exec, from.column_range(left, all), a.written<T>(1));
  });
  append({{forward}, {backward}});
  return made;
}

template <class T>
void Operations<T>::join_keys(int own, int of_all, const std::string& name, int keys, int values,
                              std::int64_t head_width) {
  const int shared = redistribute(of_all, Distribution::replicated);
  math::LatentHeads heads;
  heads.heads = columns_of(keys) / head_width;
  heads.shared_width = columns_of(shared);
  heads.own_width = head_width - heads.shared_width;
  heads.value_width = columns_of(values) / heads.heads;
  const std::int64_t joined = heads.key_columns() + heads.value_columns();
  Call forward = pass({name, {own, shared}, {keys, values}}, own, columns_of(own) + joined);
  forward.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    math::join_keys<T>(exec, heads, a.read<T>(0), a.read<T>(1), a.written<T>(0, 2));
  });
  Call parts = pass({"d " + name, {~keys, ~values}, {~own}}, own, columns_of(own) + joined);
  parts.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    math::split_keys<T>(exec, heads, a.read<T>(0, 2), a.written<T>(0));
  });
  // Where pieces have some heads each, their sums are added up as those of products are.
  Call sum = pass({"d " + name + ", shared", {~keys}, {~shared}}, own,
                  (heads.heads + 1) * heads.shared_width);
  sum.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    if (a.place_written(0).element == Element::sum)
      math::sum_shared_keys<T, Compute>(exec, heads, a.read<T>(0), a.written<Compute>(0));
    else
      math::sum_shared_keys<T, T>(exec, heads, a.read<T>(0), a.written<T>(0));
  });
  append({{forward}, {parts, sum}});
}

namespace {

/// The rows of a weight that make keys of a latent, by head.
template <class T>
math::Batch<const T> rows_of_keys(const math::LatentHeads& heads, View<const T*> weight) {
  const std::int64_t rows = heads.own_columns();
  return math::Batch<const T>::of_rows(weight.matrix(rows, weight.size() / rows), heads.own_width,
                                       heads.own_width, heads.heads);
}
/// Those that make values.
template <class T>
math::Batch<const T> rows_of_values(const math::LatentHeads& heads, View<const T*> weight) {
  const std::int64_t rows = heads.own_columns();
  const View<const T**> all = weight.matrix(rows, weight.size() / rows);
  return math::Batch<const T>::of_rows(all.row_range(heads.heads * heads.own_width, rows),
                                       heads.value_width, heads.value_width, heads.heads);
}

}  // namespace

template <class T>
int Operations<T>::absorb_keys(int queries, const std::string& name,
                               const math::LatentHeads& heads) {
  const std::vector<int> weights = weights_of(name);
  const std::int64_t rank = elements_of(weights.front()) / heads.own_columns();
  const std::int64_t shared = heads.shared_width, columns = shared + rank;
  const int made = add_for(queries, name_of(queries) + " for latents", heads.heads * columns);
  Call forward = product({"absorb keys of " + name, {queries}, {made}, weights}, queries,
                         heads.own_width, heads.heads * rank);
  forward.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    const View<const T**> q = a.read<T>(0);
    const View<T**> to = a.written<T>(0);
    const std::int64_t all = q.rows() * heads.heads;
    math::copy_rows<T, T>(exec, q.flat().matrix(all, heads.key_width()).column_range(0, shared),
                          to.flat().matrix(all, columns).column_range(0, shared));
    math::gemm_batched<T>(
        exec, Transpose::no, Transpose::no, 1,
        math::Batch<const T>::of_columns(q.column_range(shared, q.columns()), heads.own_width,
                                         heads.key_width(), heads.heads),
        rows_of_keys<T>(heads, a.weight<T>(0)), 0,
        math::Batch<T>::of_columns(to.column_range(shared, to.columns()), rank, columns,
                                   heads.heads));
  });
  append({{forward}});
  return made;
}

template <class T>
int Operations<T>::absorb_values(int latents, const std::string& name,
                                 const math::LatentHeads& heads) {
  const std::vector<int> weights = weights_of(name);
  const std::int64_t rank = columns_of(latents) / heads.heads;
  const int made = add_for(latents, name_of(latents) + " as values", heads.value_columns());
  Call forward = product({"absorb values of " + name, {latents}, {made}, weights}, latents, rank,
                         heads.value_columns());
  forward.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    math::gemm_batched<T>(exec, Transpose::no, Transpose::yes, 1,
                          math::Batch<const T>::of_columns(a.read<T>(0), rank, rank, heads.heads),
                          rows_of_values<T>(heads, a.weight<T>(0)), 0,
                          math::Batch<T>::of_columns(a.written<T>(0), heads.value_width,
                                                     heads.value_width, heads.heads));
  });
  append({{forward}});
  return made;
}

#define OSTRAKON_INSTANTIATE(T)                                                                    \
  template int Operations<T>::row_linear(int, const std::string&, std::int64_t);                   \
  template int Operations<T>::absorb_keys(int, const std::string&, const math::LatentHeads&);      \
  template int Operations<T>::absorb_values(int, const std::string&, const math::LatentHeads&);    \
  template std::vector<int> Operations<T>::split(                                                  \
      int, const std::string&, const std::vector<std::string>&, const std::vector<std::int64_t>&); \
  template int Operations<T>::join(int, int, const std::string&);                                  \
  template void Operations<T>::join_keys(int, int, const std::string&, int, int, std::int64_t);
OSTRAKON_FOR_ALL_NUMBERS(OSTRAKON_INSTANTIATE)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::model::graph
