// SPDX-License-Identifier: Apache-2.0
#pragma once

// What units that are divided over tensor ranks share. Their flat parameters come in pieces, of
// which each rank has neighbouring ones: for some heads, columns of the MLP or words. Arrays that
// all rows take as a whole (weights of norms, biases that are added to whole rows, routers) are
// cut, too, and gathered before they are used.

#include <ostrakon/model/decoder.hpp>
#include <ostrakon/model/layers.hpp>
#include <string>
#include <vector>

namespace ostrakon::model {

/// Elements of one piece of a unit's segments.
struct PieceSizes {
  std::int64_t trained = 0;
  std::int64_t frozen = 0;
};

/// Piece `piece` of those that a rank has. Locations are within a piece.
template <class T>
FlatParameter<T> own_piece(const UnitBuffers<T>& buffers, const PieceSizes& sizes,
                           std::int64_t piece);
/// Of the unit that it is tied to, which is no part of a stack.
template <class T>
FlatParameter<T> tied_piece(const UnitBuffers<T>& buffers, const PieceSizes& sizes,
                            std::int64_t piece);
/// The gradients of what is trained in it.
template <class T>
View<compute_t<T>*> own_piece_gradients(const UnitBuffers<T>& buffers, const PieceSizes& sizes,
                                        std::int64_t piece);
template <class T>
View<compute_t<T>*> tied_piece_gradients(const UnitBuffers<T>& buffers, const PieceSizes& sizes,
                                         std::int64_t piece);

/// Sizes of the pieces of a unit with these parameters, which are laid out.
PieceSizes piece_sizes(const std::vector<Parameter>& parameters);

/// Where a piece of `parameter` lies in a piece of its segment.
ParameterLocation piece_location(const Parameter& parameter);

/// A piece of the layer `name`, without a bias that is cut by columns of the result.
Linear find_piece_of_linear(const std::vector<Parameter>& parameters, const std::string& name);

/// Cuts of the parameters of layers, for lay_out_parameters: rows of the weight and the bias;
/// columns of the weight.
void cut_rows(std::vector<Parameter>& parameters, const std::string& name,
              const std::vector<std::int64_t>& sections);
void cut_columns(std::vector<Parameter>& parameters, const std::string& name);

/// The arrays of a unit that are gathered as a whole, one after the other: most as long as a row,
/// `width` elements; all cut into equal runs of their elements. Those whose gradients are sums over
/// rows, which each rank has for its own rows alone, come first.
class Vectors {
 public:
  Vectors() = default;
  Vectors(const LeafShape& leaf, std::int64_t width)
      : leaf_(leaf),
        ranks_(leaf.tensor_ranks),
        own_(leaf.own_pieces()),
        of_piece_(width / leaf.tensor_pieces()) {}

  /// Where the gathered array of a parameter lies among all; if there is none, nowhere.
  /// `is_summed`: whether its gradient is a sum over rows.
  ParameterLocation add(const std::vector<Parameter>& parameters, const std::string& name,
                        bool is_summed);
  /// The norm `name` by its gathered arrays.
  Norm add_norm(const std::vector<Parameter>& parameters, const std::string& name,
                math::NormKind kind, double epsilon);

  std::int64_t elements() const { return elements_; }
  std::int64_t summed_elements() const { return summed_elements_; }
  /// Columns of a row whose bias, among these, the rank's piece `piece` has.
  std::int64_t first_column(std::int64_t tensor_rank, std::int64_t piece) const {
    return leaf_.piece_of(tensor_rank, piece) * of_piece_;
  }
  std::int64_t columns_of_piece() const { return of_piece_; }

  plan::Exchange gather(std::int64_t element_bytes) const;
  plan::Exchange sum(std::int64_t element_bytes) const;

  template <class T>
  void hand(const Exec& exec, const UnitBuffers<T>& buffers, const PieceSizes& sizes) const;
  /// vectors (elements()) = what was gathered.
  template <class T>
  void take(const Exec& exec, const UnitBuffers<T>& buffers, View<T*> vectors) const;

  /// sums (summed_elements()): of this rank's rows.
  template <class T>
  void hand_gradients(const Exec& exec, View<const compute_t<T>*> sums,
                      const UnitBuffers<T>& buffers) const;
  template <class T>
  void take_gradients(const Exec& exec, const UnitBuffers<T>& buffers,
                      const PieceSizes& sizes) const;

 private:
  /// An array's elements: where its piece is in one of the unit's; where all of it is gathered.
  struct Array {
    ParameterLocation piece;
    std::int64_t first;
  };
  /// Elements of the arrays up to `end` that a rank has.
  std::int64_t of_rank(std::int64_t end) const { return end / ranks_; }
  /// Those of one array, in what each rank has of all of them.
  std::int64_t first_of_rank(const Array& array) const { return of_rank(array.first); }
  std::int64_t end_of_rank(const Array& array) const {
    return first_of_rank(array) + own_ * array.piece.elements;
  }

  LeafShape leaf_;
  std::int64_t ranks_ = 1, own_ = 1, of_piece_ = 0;
  std::int64_t elements_ = 0, summed_elements_ = 0;
  std::vector<Array> arrays_;
  std::size_t summed_ = 0;  // of them
};

/// Gathers of rows over the tensor ranks, and sums of what each has of all rows, of which each gets
/// its own: `columns` elements a row.
plan::Exchange gather_rows(const LeafShape& leaf, std::int64_t columns, std::int64_t element_bytes);
plan::Exchange sum_rows(const LeafShape& leaf, std::int64_t columns, std::int64_t element_bytes);

/// What an exchange of sums brought, (rows, columns), in T: rounded into `rounded`, unless sums are
/// of type T.
template <class T>
View<const T**> summed_rows(const Exec& exec, View<const std::byte*> exchanged, std::int64_t rows,
                            std::int64_t columns, View<T**> rounded);

}  // namespace ostrakon::model
