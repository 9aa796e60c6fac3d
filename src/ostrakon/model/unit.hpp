// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <ostrakon/math/half.hpp>
#include <ostrakon/math/view.hpp>
#include <ostrakon/plan/ir/description.hpp>
#include <string>
#include <utility>
#include <vector>

namespace ostrakon::model {

enum class Initializer {
  zeros,
  ones,
  normal,
  uniform,     ///< spread evenly around 0
  log_uniform  ///< logarithms of numbers that are spread evenly from 0.01 to 16
};

/// How a parameter is cut into pieces for tensor parallelism: along its rows, or its columns.
struct Cut {
  bool by_columns = false;
  /// Rows that are cut by themselves, one after the other (queries, keys, values). Empty: all.
  std::vector<std::int64_t> sections = {};
};

/// Elements of a parameter, `count` in equal runs: those from `first` on, then those from `first` +
/// `stride` on, and so on; the first run begins with its element `skipped`.
struct ElementRuns {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t run = 0;
  std::int64_t stride = 0;
  std::int64_t skipped = 0;

  static ElementRuns in_one(std::int64_t first, std::int64_t count) {
    return {first, count, count, 0, 0};
  }
  /// Without the first `begin` of them, and `size` of the others.
  ElementRuns range(std::int64_t begin, std::int64_t size) const {
    const std::int64_t at = skipped + begin;
    if (skipped + count <= run) return in_one(first + at, size);
    return {first + at / run * stride, size, run, stride, at % run};
  }
  /// body(first element, number of elements) of neighbours, one after the other.
  template <class Body>
  void for_each(const Body& body) const {
    if (skipped + count <= run) return body(first + skipped, count);
    std::int64_t begin = first, at = skipped;
    for (std::int64_t left = count; left > 0; begin += stride, at = 0) {
      const std::int64_t some = left < run - at ? left : run - at;
      body(begin + at, some);
      left -= some;
    }
  }
};

/// One named parameter inside a unit's flat parameter.
struct Parameter {
  std::string name;  ///< within its owner: "attention.qkv.weight"
  std::vector<std::int64_t> shape;
  Initializer initializer = Initializer::zeros;
  double deviation = 0.0;   ///< of a normal or uniform initializer
  bool decays = false;      ///< takes part in weight decay
  std::int64_t offset = 0;  ///< first element in its segment; set by lay_out_parameters
  std::string owner = {};   ///< the part of the model: "block.3"; set by lay_out_parameters
  bool frozen = false;      ///< never updated; lay_out_parameters adds those that it is told
  /// Whether muon updates it as a matrix, if it has two extents. Not where rows are looked up or
  /// give logits: that is no linear map between hidden states.
  bool orthogonalize = true;
  bool quantized = false;         ///< gathered in 8 bits
  Cut cut = {};                   ///< into pieces, where its unit has several
  std::int64_t pieces = 1;        ///< in its segment, of which `offset` is the first one's; set by
                                  ///< lay_out_parameters, as is
  std::int64_t piece_stride = 0;  ///< elements from one piece to the next
  /// Above 0: with every optimizer it is updated by x -= sign_rate * sign(gradient), whatever the
  /// schedule, and its gradient is no part of the gradient's norm. For what is no weight, but
  /// follows counts: a router's bias.
  double sign_rate = 0.0;

  /// "block.3.attention.qkv.weight": unique in a model, and the same however blocks are grouped
  /// into units.
  std::string full_name() const { return owner + "." + name; }

  std::int64_t elements() const {
    std::int64_t product = 1;
    for (std::int64_t extent : shape) product *= extent;
    return product;
  }

  std::int64_t rows() const { return shape.empty() ? 1 : shape.front(); }
  std::int64_t columns() const { return rows() > 0 ? elements() / rows() : 0; }
  /// Returns the rows of one of `of` pieces, where rows that do not divide are padded.
  std::int64_t piece_rows(std::int64_t of) const;
  std::int64_t piece_columns(std::int64_t of) const {
    return cut.by_columns ? columns() / of : columns();
  }
  std::int64_t piece_elements() const { return piece_rows(pieces) * piece_columns(pieces); }
  /// Elements of piece `piece`, in the order in which it has them: one or several of these, one
  /// after the other.
  std::vector<ElementRuns> elements_of_piece(std::int64_t piece) const;

  /// A parameter that starts with zeros and does not decay.
  static Parameter zeros(std::string name, std::vector<std::int64_t> shape) {
    return {std::move(name), std::move(shape)};
  }
  /// One that starts with random numbers of mean 0 and decays.
  static Parameter normal(std::string name, std::vector<std::int64_t> shape, double deviation) {
    return {std::move(name), std::move(shape), Initializer::normal, deviation, true};
  }
  static Parameter uniform(std::string name, std::vector<std::int64_t> shape, double deviation) {
    return {std::move(name), std::move(shape), Initializer::uniform, deviation, true};
  }
};

/// Every parameter begins at a multiple of this many elements: aligned for any vector unit, and a
/// multiple of the block in which norms are summed.
constexpr std::int64_t parameter_alignment = 64;

/// Whether the parameter with this full name is never updated. Empty: none is frozen.
using Frozen = std::function<bool(const std::string& full_name)>;

/// Elements of the two segments of a flat parameter, each a multiple of parameter_alignment.
struct SegmentSizes {
  std::int64_t frozen = 0;
  std::int64_t trained = 0;
};

/// Sets the offsets: in the order of the list, end to end in each segment but for alignment. The
/// layout does not depend on the number of ranks. With several pieces a segment has the first piece
/// of each, then the second of each, and so on, so that equal numbers of pieces are equal parts of
/// it. Throws Error, naming the parameter, where its columns do not divide into so many pieces, or
/// a piece of its rows would be empty.
SegmentSizes lay_out_parameters(std::vector<Parameter>& parameters, std::int64_t pieces = 1);
/// First sets the owner, and which parameters are frozen besides those that say so themselves.
SegmentSizes lay_out_parameters(std::vector<Parameter>& parameters, const std::string& owner,
                                const Frozen& frozen, std::int64_t pieces = 1);

/// Sets frozen_count and alignment_elements of a unit with these parameters.
void count_parameters(const std::vector<Parameter>& parameters, plan::UnitDescription& unit);

/// The type of gradients of parameters.
template <class T>
struct SumOf {
  using type = compute_t<T>;
};
template <>
struct SumOf<void> {
  using type = float;
};

/// Neighbouring rows of a call that decodes: `count` tokens of sequence `sequence` of the leaf,
/// from position `position` on. It continues from the tokens before, of which `saved` is still
/// there.
struct DecodedRun {
  std::int64_t sequence = 0, position = 0, count = 1;
};
/// Runs of a call, whose rows follow one after the other in all arrays; each of another sequence.
using DecodedRuns = std::vector<DecodedRun>;

/// What is called in place of kernels that users have written: OperationWatch.
struct KernelWatch {
  virtual ~KernelWatch() = default;
};

/// What a unit computes with, owned by the caller, valid for the call. Arrays that a call has no
/// use for do not exist.
///
/// A unit's flat parameter comes in two segments: what is trained, with gradients laid out like it,
/// and what is frozen. Those of a model without frozen parameters are all trained.
///
/// Parameters and activations are T; what is summed up, gradients of parameters and losses, is
/// compute_t<T>. `saved` and `workspace` hold arrays of both, and are bytes. With T = void: of a
/// type that is known at run time only, as bytes; gradients of parameters are float then.
template <class T>
struct UnitBuffers {
  using Element = std::conditional_t<std::is_void<T>::value, std::byte, T>;
  using Sum = typename SumOf<T>::type;

  int phase = 0;            ///< of forward or backward, that is computed
  bool recomputes = false;  ///< forward for what it saves alone
  /// Which rows are computed, where sequences are decoded; null where they are not: all.
  const DecodedRuns* decoded = nullptr;
  std::int64_t context_rank = 0;  ///< of each sample, that this rank has: Model::context_ranks
  std::int64_t tensor_rank = 0;   ///< among Model::tensor_ranks
  std::int64_t expert_rank = 0;  ///< among those that share the unit's parts, plan::UnitDescription
  View<const std::byte*> batch;  ///< the samples of the leaf
  View<const std::byte*> recv_buffer;  ///< of the first exchange that it reads: plan::Phase::reads
  View<const std::byte*> second_recv_buffer;  ///< of the second
  View<std::byte*> send_buffer;  ///< for the exchange after it, if any phase reads that
  /// Where that exchange may be empty: set to whether it is, to the same on all ranks.
  bool* exchange_is_empty = nullptr;
  View<const std::int32_t*> tokens;   ///< (rows), of a decoder's batch
  View<const std::int32_t*> targets;  ///< (rows)
  /// (rows), if the leaf has documents: the position in its sequence of the first token of each
  /// token's document.
  View<const std::int32_t*> document_begins;
  View<const Element*> parameters;       ///< the flat parameter's trained segment
  View<const Element*> frozen;           ///< its frozen segment
  View<const Element*> tied_parameters;  ///< those of the unit that it is tied to
  View<const Element*> tied_frozen;
  View<const Element*> input;  ///< output of the unit before
  View<Element*> output;       ///< the last unit's: the losses, compute_t<T>
  View<std::byte*> saved;
  View<std::byte*> deferred;   ///< from backward to its phases that are deferred
  View<std::int64_t*> counts;  ///< forward adds to them: plan::UnitDescription::counts
  View<std::byte*> workspace;
  View<Element*> gradient;         ///< backward: in, dL/d output; out, dL/d input
  View<Sum*> parameter_gradients;  ///< backward writes all but the alignment gaps
  View<Sum*> tied_gradients;       ///< backward writes all of it
  KernelWatch* watch = nullptr;    ///< where gradients are checked
};

/// A part of a model whose parameters are gathered and released together. Units hold no arrays:
/// every buffer is planned, and comes with the call.
template <class T>
class Unit {
 public:
  virtual ~Unit() = default;

  virtual const plan::UnitDescription& description() const = 0;
  virtual const std::vector<Parameter>& parameters() const = 0;

  /// Reads parameters, input (or tokens, or targets); writes output and saved.
  ///
  /// Where `output` does not exist, only `saved` is written, and nothing is computed that it does
  /// not take: so what was released after forward is there again for backward, bit for bit. A unit
  /// that saves nothing has nothing to do then. The workspace is forward's.
  virtual void forward(const Exec& exec, const UnitBuffers<T>& buffers) const = 0;

  /// Reads what forward read and saved; replaces gradient; writes the gradients of parameters that
  /// are trained, and computes none of others. May use `saved` as scratch: nothing in it is needed
  /// afterwards.
  /// `loss_scale` multiplies the loss (only the last unit reads it).
  /// `adds_gradients`: parameter_gradients already holds what a unit that is tied to it
  /// contributes to all of it, or, if plan::UnitDescription::can_add_gradients, a sum over
  /// micro-batches: add instead of writing.
  ///
  /// Phases that are deferred (plan::UnitDescription::deferral) write the gradients of
  /// parameters, all others do all else. Where `deferred` does not exist, phases are those of
  /// plan::Deferral::backward_at_once.
  virtual void backward(const Exec& exec, const UnitBuffers<T>& buffers, compute_t<T> loss_scale,
                        bool adds_gradients) const = 0;

  /// Where sequences are decoded: what `saved` has of sequence `to` becomes what it has of `from`.
  /// Throws std::logic_error of units that do not decode.
  virtual void copy_sequence(const Exec& exec, const UnitBuffers<T>& buffers, std::int64_t from,
                             std::int64_t to) const;
};

}  // namespace ostrakon::model
