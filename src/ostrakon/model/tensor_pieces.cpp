// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/tensor_pieces.hpp>

#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/sequence_parts.hpp>
#include <ostrakon/model/packing.hpp>

namespace ostrakon::model {
namespace {

/// A pointer to a parameter of a vector, which may be const; null: there is none.
template <class Parameters>
auto find(Parameters& parameters, const std::string& name) {
  const auto found =
      std::find_if(parameters.begin(), parameters.end(),
                   [&](const Parameter& parameter) { return parameter.name == name; });
  return found == parameters.end() ? nullptr : &*found;
}

template <class A>
View<A*> piece_in(View<A*> segment, std::int64_t stride, std::int64_t elements,
                  std::int64_t piece) {
  return segment.range(piece * stride, piece * stride + elements);
}

std::int64_t stride_of(std::int64_t stride, std::int64_t elements) {
  return stride > 0 ? stride : elements;
}

/// The array at `location` of `pieces` pieces: (pieces, elements).
template <class A>
View<A**> in_pieces(View<A*> segment, std::int64_t stride, std::int64_t pieces,
                    const ParameterLocation& location) {
  const std::int64_t end = location.offset + (pieces - 1) * stride + location.elements;
  const View<A*> all = segment.range(location.offset, end);
  return {all.data(), pieces, location.elements, stride, all.origin()};
}

}  // namespace

template <class T>
FlatParameter<T> own_piece(const UnitBuffers<T>& buffers, const PieceSizes& sizes,
                           std::int64_t piece) {
  return {piece_in(buffers.parameters, stride_of(buffers.trained_stride, sizes.trained),
                   sizes.trained, piece),
          piece_in(buffers.frozen, stride_of(buffers.frozen_stride, sizes.frozen), sizes.frozen,
                   piece)};
}

template <class T>
FlatParameter<T> tied_piece(const UnitBuffers<T>& buffers, const PieceSizes& sizes,
                            std::int64_t piece) {
  return {piece_in(buffers.tied_parameters, sizes.trained, sizes.trained, piece),
          piece_in(buffers.tied_frozen, sizes.frozen, sizes.frozen, piece)};
}

template <class T>
View<compute_t<T>*> own_piece_gradients(const UnitBuffers<T>& buffers, const PieceSizes& sizes,
                                        std::int64_t piece) {
  return piece_in(buffers.parameter_gradients, stride_of(buffers.trained_stride, sizes.trained),
                  sizes.trained, piece);
}

template <class T>
View<compute_t<T>*> tied_piece_gradients(const UnitBuffers<T>& buffers, const PieceSizes& sizes,
                                         std::int64_t piece) {
  return piece_in(buffers.tied_gradients, sizes.trained, sizes.trained, piece);
}

PieceSizes piece_sizes(const std::vector<Parameter>& parameters) {
  PieceSizes sizes;
  for (const Parameter& parameter : parameters)
    (parameter.frozen ? sizes.frozen : sizes.trained) = parameter.piece_stride;
  return sizes;
}

ParameterLocation piece_location(const Parameter& parameter) {
  return {parameter.offset, parameter.frozen, parameter.piece_elements()};
}

Linear find_piece_of_linear(const std::vector<Parameter>& parameters, const std::string& name) {
  const Parameter* const weight = find(parameters, name + ".weight");
  const Parameter* const bias = find(parameters, name + ".bias");
  require(weight != nullptr, "unit has no parameter ", name, ".weight");
  Linear layer{weight->piece_columns(weight->pieces),
               weight->piece_rows(weight->pieces),
               piece_location(*weight),
               {}};
  if (bias != nullptr && !weight->cut.by_columns) layer.bias = piece_location(*bias);
  return layer;
}

void cut_rows(std::vector<Parameter>& parameters, const std::string& name,
              const std::vector<std::int64_t>& sections) {
  for (const char* array : {".weight", ".bias"})
    if (Parameter* const parameter = find(parameters, name + array))
      parameter->cut = {false, sections};
}

void cut_columns(std::vector<Parameter>& parameters, const std::string& name) {
  find(parameters, name + ".weight")->cut = {true, {}};
}

ParameterLocation Vectors::add(const std::vector<Parameter>& parameters, const std::string& name,
                               bool is_summed) {
  const Parameter* const parameter = find(parameters, name);
  if (parameter == nullptr) return {};
  const std::int64_t first = elements_;
  arrays_.push_back({piece_location(*parameter), first});
  elements_ += parameter->elements();
  if (is_summed) {
    summed_ = arrays_.size();
    summed_elements_ = elements_;
  }
  return {first, parameter->frozen, parameter->elements()};
}

Norm Vectors::add_norm(const std::vector<Parameter>& parameters, const std::string& name,
                       math::NormKind kind, double epsilon) {
  Norm norm{kind, epsilon, {}, {}};
  norm.weight = add(parameters, name + ".weight", true);
  norm.bias = add(parameters, name + ".bias", true);
  return norm;
}

namespace {

plan::Exchange exchange(plan::ExchangeKind kind, std::int64_t ranks, std::int64_t elements,
                        std::int64_t element_bytes) {
  return {kind, {plan::Axis::tensor, static_cast<int>(ranks)}, elements, element_bytes};
}

}  // namespace

plan::Exchange Vectors::gather(std::int64_t element_bytes) const {
  return exchange(plan::ExchangeKind::gather, ranks_, elements(), element_bytes);
}

plan::Exchange Vectors::sum(std::int64_t element_bytes) const {
  return exchange(plan::ExchangeKind::reduce_scatter, ranks_, summed_elements(), element_bytes);
}

template <class T>
void Vectors::hand(const Exec& exec, const UnitBuffers<T>& buffers, const PieceSizes& sizes) const {
  const View<T*> handed = view_as<T>(buffers.handed);
  for (const Array& array : arrays_) {
    const ParameterLocation& piece = array.piece;
    const std::int64_t stride = piece.frozen ? stride_of(buffers.frozen_stride, sizes.frozen)
                                             : stride_of(buffers.trained_stride, sizes.trained);
    math::copy_rows<T, T>(
        exec, in_pieces(piece.frozen ? buffers.frozen : buffers.parameters, stride, own_, piece),
        handed.range(first_of_rank(array), end_of_rank(array)).matrix(own_, piece.elements));
  }
}

template <class T>
void Vectors::take(const Exec& exec, const UnitBuffers<T>& buffers, View<T*> vectors) const {
  const View<const T**> all =
      view_as<const T>(buffers.exchanged).matrix(ranks_, of_rank(elements_));
  for (const Array& array : arrays_) {
    const std::int64_t begin = first_of_rank(array), end = end_of_rank(array);
    math::copy_rows<T, T>(exec, all.column_range(begin, end),
                          vectors.range(ranks_ * begin, ranks_ * end).matrix(ranks_, end - begin));
  }
}

template <class T>
void Vectors::hand_gradients(const Exec& exec, View<const compute_t<T>*> sums,
                             const UnitBuffers<T>& buffers) const {
  using C = compute_t<T>;
  const View<C**> all = view_as<C>(buffers.handed).matrix(ranks_, of_rank(summed_elements_));
  for (std::size_t a = 0; a < summed_; ++a) {
    const std::int64_t begin = first_of_rank(arrays_[a]), end = end_of_rank(arrays_[a]);
    math::copy_rows<C, C>(exec,
                          sums.range(ranks_ * begin, ranks_ * end).matrix(ranks_, end - begin),
                          all.column_range(begin, end));
  }
}

template <class T>
void Vectors::take_gradients(const Exec& exec, const UnitBuffers<T>& buffers,
                             const PieceSizes& sizes) const {
  using C = compute_t<T>;
  const View<const C*> own = view_as<const C>(buffers.exchanged);
  for (std::size_t a = 0; a < summed_; ++a) {
    const ParameterLocation& piece = arrays_[a].piece;
    if (!piece.trained()) continue;
    math::copy_rows<C, C>(
        exec,
        own.range(first_of_rank(arrays_[a]), end_of_rank(arrays_[a])).matrix(own_, piece.elements),
        in_pieces(buffers.parameter_gradients, stride_of(buffers.trained_stride, sizes.trained),
                  own_, piece));
  }
}

plan::Exchange gather_rows(const LeafShape& leaf, std::int64_t columns,
                           std::int64_t element_bytes) {
  return exchange(plan::ExchangeKind::gather, leaf.tensor_ranks, leaf.rows() * columns,
                  element_bytes);
}

plan::Exchange sum_rows(const LeafShape& leaf, std::int64_t columns, std::int64_t element_bytes) {
  return exchange(plan::ExchangeKind::reduce_scatter, leaf.tensor_ranks, leaf.rows() * columns,
                  element_bytes);
}

template <class T>
View<const T**> summed_rows(const Exec& exec, View<const std::byte*> exchanged, std::int64_t rows,
                            std::int64_t columns, View<T**> rounded) {
  using C = compute_t<T>;
  const View<const C**> sums = view_as<const C>(exchanged).matrix(rows, columns);
  if constexpr (std::is_same<T, C>::value) {
    return sums;
  } else {
    math::copy_rows<C, T>(exec, sums, rounded);
    return rounded;
  }
}

#define OSTRAKON_INSTANTIATE(T)                                                                    \
  template FlatParameter<T> own_piece<T>(const UnitBuffers<T>&, const PieceSizes&, std::int64_t);  \
  template FlatParameter<T> tied_piece<T>(const UnitBuffers<T>&, const PieceSizes&, std::int64_t); \
  template View<compute_t<T>*> own_piece_gradients<T>(const UnitBuffers<T>&, const PieceSizes&,    \
                                                      std::int64_t);                               \
  template View<compute_t<T>*> tied_piece_gradients<T>(const UnitBuffers<T>&, const PieceSizes&,   \
                                                       std::int64_t);                              \
  template View<const T**> summed_rows<T>(const Exec&, View<const std::byte*>, std::int64_t,       \
                                          std::int64_t, View<T**>);                                \
  template void Vectors::hand<T>(const Exec&, const UnitBuffers<T>&, const PieceSizes&) const;     \
  template void Vectors::take<T>(const Exec&, const UnitBuffers<T>&, View<T*>) const;              \
  template void Vectors::hand_gradients<T>(const Exec&, View<const compute_t<T>*>,                 \
                                           const UnitBuffers<T>&) const;                           \
  template void Vectors::take_gradients<T>(const Exec&, const UnitBuffers<T>&, const PieceSizes&)  \
      const;
OSTRAKON_INSTANTIATE(float)
OSTRAKON_INSTANTIATE(double)
OSTRAKON_INSTANTIATE(bf16)
OSTRAKON_INSTANTIATE(fp16)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::model
