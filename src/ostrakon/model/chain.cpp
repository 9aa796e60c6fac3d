// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/chain.hpp>

#include <algorithm>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/model/chain_check.hpp>
#include <ostrakon/model/decoder.hpp>
#include <ostrakon/model/typed_buffers.hpp>
#include <typeinfo>

namespace ostrakon::model {
namespace {

template <class T>
constexpr DType dtype_of = DType::fp32;
template <>
constexpr DType dtype_of<bf16> = DType::bf16;
template <>
constexpr DType dtype_of<fp16> = DType::fp16;

/// Bytes of the `which`-th exchange that a phase reads, and of what it hands over.
std::int64_t bytes_read(const plan::Phases& phases, int phase, std::size_t which) {
  const std::vector<int>& reads = phases[static_cast<std::size_t>(phase)].reads;
  if (which >= reads.size()) return 0;
  return phases[static_cast<std::size_t>(reads[which])].then->bytes_out();
}
std::int64_t bytes_handed(const plan::Phases& phases, int phase) {
  const auto& then = phases[static_cast<std::size_t>(phase)].then;
  return then ? then->bytes_in() : 0;
}

/// An Error of `call` says which unit's it is. Other types, which say more than their text, pass.
template <class Call>
void with_name(const std::string& unit, const char* name, const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    if (typeid(error) != typeid(Error)) throw;
    throw Error(text("unit ", unit, ", ", name, ": ", error.what()));
  }
}

LeafShape shape_of(const LeafSize& leaf) {
  LeafShape shape;
  shape.batch = leaf.samples;
  shape.tokens = leaf.rows;
  shape.tensor_ranks = leaf.tensor_ranks;
  shape.tensor_grain = leaf.tensor_grain;
  return shape;
}

void require_possible(const LeafSize& leaf) {
  require(leaf.samples >= 1 && leaf.sample_bytes >= 1, "a leaf of ", leaf.samples, " samples of ",
          leaf.sample_bytes, " bytes; expected at least 1 of each");
  require(leaf.sample_bytes <= largest_chain / leaf.samples, "a leaf of ", leaf.samples,
          " samples of ", leaf.sample_bytes, " bytes; expected at most ", largest_chain, " bytes");
  require(leaf.rows >= 1 && leaf.rows <= largest_chain / leaf.samples, "a leaf of ", leaf.samples,
          " samples of ", leaf.rows, " rows; expected at least 1, and at most ", largest_chain,
          " in all");
  require(leaf.tensor_ranks >= 1 && leaf.tensor_grain >= 1, "a leaf of ", leaf.tensor_ranks,
          " tensor ranks and a tensor grain of ", leaf.tensor_grain,
          "; expected at least 1 of each");
  const std::int64_t pieces = shape_of(leaf).tensor_pieces(), rows = leaf.samples * leaf.rows;
  require(pieces % leaf.tensor_ranks == 0, "a tensor grain of ", pieces, " can't be divided over ",
          leaf.tensor_ranks, " tensor ranks; expected a multiple");
  require(rows % pieces == 0, "the ", rows, " rows of a leaf can't be cut into ", pieces,
          " tensor pieces; expected a multiple");
}

}  // namespace

template <class T>
Chain<T>::Chain(Units units, LeafSize leaf, const Frozen& frozen) : leaf_(leaf) {
  require_possible(leaf);
  for (auto& entry : units.entries()) add(std::move(entry), frozen);
  check_chain(descriptions_);
  for (int u = 0; u < this->units(); ++u) {
    description_.units.push_back(describe(u, frozen));
    if (!is_loss(u))
      description_.gradient_bytes =
          std::max(description_.gradient_bytes, description_.units.back().output_bytes);
  }
  require_different_parameters(descriptions_);
  if (frozen) require_frozen(frozen);
  description_.batch_bytes = leaf.bytes();
  description_.element_bytes = sizeof(T);
  description_.master_bytes = sizeof(compute_t<T>);
  description_.tensor_grain = leaf.tensor_grain;
  description_.tensor_ranks = static_cast<int>(leaf.tensor_ranks);
}

template <class T>
void Chain<T>::add(typename Units::Entry entry, const Frozen& frozen) {
  if (entry.function) return build(entry.name, entry.function, frozen);
  require(entry.unit != nullptr, "unit ", units(), " of a chain is null");
  descriptions_.push_back(entry.unit->describe());
  require(shape_of(leaf_).tensor_pieces() == 1, "unit ", descriptions_.back().name,
          " is written by hand, for whole rows and columns; expected 1 tensor piece");
  computed_.push_back({nullptr, std::move(entry.unit)});
}

template <class T>
void Chain<T>::build(const std::string& name, const UnitFunction<T>& function,
                     const Frozen& frozen) {
  const LeafShape shape = shape_of(leaf_);
  const std::int64_t input = descriptions_.empty() ? 0 : descriptions_.back().output;
  typename Builder<T>::Built built;
  with_name(name, "as it is described", [&] {
    require(input % shape.own_rows() == 0, "its input has ", input,
            " elements, which are no matrix of ", shape.own_rows(), " rows");
    Builder<T> builder(name, shape, input / shape.own_rows(), frozen,
                       [&](const std::string& other) { return find_table(other); });
    try {
      built = std::move(builder).build(function(builder, builder.input()));
    } catch (const std::logic_error& error) {
      throw Error(text("its program can't be derived: ", error.what()));
    }
    require(built.batch_bytes <= leaf_.bytes(), "it reads ", built.batch_bytes,
            " bytes of a batch, but those of a leaf are ", leaf_.bytes());
  });
  const plan::UnitDescription& planned = built.unit->description();
  ChainUnitDescription own{name, built.unit->parameters(), input};
  own.is_loss = built.is_loss;
  own.output = planned.output_bytes /
               static_cast<std::int64_t>(built.is_loss ? sizeof(compute_t<T>) : sizeof(T));
  own.saved_bytes = planned.saved_bytes;
  own.reads_batch = built.reads_batch;
  own.backward_reads_parameters = planned.backward_reads_parameters;
  own.forward = planned.forward;
  own.backward = planned.backward;
  own.tied_to = built.tied_to;
  descriptions_.push_back(std::move(own));
  computed_.push_back({std::move(built.unit), nullptr, built.table});
}

/// The table of an embedding in a unit that is there.
template <class T>
const Parameter* Chain<T>::find_table(const std::string& unit) const {
  for (std::size_t u = 0; u < computed_.size(); ++u)
    for (const Parameter& parameter : descriptions_[u].parameters)
      if (descriptions_[u].name == unit && parameter.name == computed_[u].table) return &parameter;
  return nullptr;
}

/// The unit that a unit says it is tied to.
template <class T>
int Chain<T>::find_tied(int unit) const {
  const std::string& name = this->unit(unit).tied_to;
  for (int u = 0; u < unit && !name.empty(); ++u)
    if (this->unit(u).name == name) return u;
  return -1;
}

template <class T>
plan::UnitDescription Chain<T>::describe(int unit, const Frozen& frozen) {
  ChainUnitDescription& own = descriptions_[static_cast<std::size_t>(unit)];
  const int tied = find_tied(unit);
  if (built(unit) != nullptr) {
    plan::UnitDescription planned = built(unit)->description();
    for (const Parameter& parameter : own.parameters)
      if (parameter.frozen) planned.frozen_count += parameter.elements();
    planned.tied_to = tied;
    return planned;
  }
  const SegmentSizes sizes = lay_out_parameters(own.parameters, own.name, frozen);
  plan::UnitDescription planned;
  planned.name = own.name;
  planned.parameter_elements = sizes.frozen + sizes.trained;
  planned.frozen_elements = sizes.frozen;
  for (const Parameter& parameter : own.parameters)
    if (parameter.frozen) planned.frozen_count += parameter.elements();
  const auto element_bytes =
      static_cast<std::int64_t>(is_loss(unit) ? sizeof(compute_t<T>) : sizeof(T));
  planned.output_bytes = own.output * element_bytes;
  planned.saved_bytes = own.saved_bytes;
  planned.forward = own.forward;
  planned.backward = own.backward;
  planned.gradient_flops = plan::flops(own.backward);
  planned.recomputes = own.saved_bytes > 0 && !is_loss(unit);
  planned.reads_batch = own.reads_batch;
  planned.backward_reads_parameters = own.backward_reads_parameters || is_loss(unit);
  if (is_loss(unit)) {
    planned.backward = own.forward;
    plan::append(planned.backward, own.backward);
  }
  planned.tied_to = tied;
  planned.tied_gradients =
      tied >= 0 && description_.units[static_cast<std::size_t>(tied)].trained_elements() > 0;
  return planned;
}

/// A name that is not spelt as it is in the chain would leave the parameter trained.
template <class T>
void Chain<T>::require_frozen(const Frozen& frozen) const {
  std::string first;
  for (const ChainUnitDescription& unit : descriptions_)
    for (const Parameter& parameter : unit.parameters) {
      if (frozen(parameter.full_name())) return;
      if (first.empty()) first = parameter.full_name();
    }
  throw Error(text("frozen, the third argument of Chain, names no parameter of the chain, ",
                   first.empty() ? "which has none" : "the first of which is ", first));
}

/// What forward and backward have in common.
template <class T>
template <class Call>
Call Chain<T>::make_call(int unit, const Exec& exec, const UnitBuffers<T>& buffers, int phase,
                         const plan::Phases& phases) const {
  const ChainUnitDescription& own = this->unit(unit);
  const auto bytes = [&](const auto& data, std::int64_t size, const char* what) {
    return Bytes<typename std::decay_t<decltype(data)>::Element>(data.range(0, size), what);
  };
  Call call;
  call.exec = exec;
  call.phase = phase;
  call.batch = own.reads_batch ? bytes(buffers.batch, leaf_.bytes(), "batch")
                               : Bytes<const std::byte>({}, "batch (reads_batch is false)");
  call.saved = bytes(buffers.saved, own.saved_bytes, "saved");
  call.input = buffers.input.range(0, own.input);
  if (!own.parameters.empty())
    call.parameters = {buffers.parameters, buffers.frozen, own.parameters};
  if (tied_to(unit) >= 0)
    call.tied_parameters = {buffers.tied_parameters, buffers.tied_frozen,
                            parameters(tied_to(unit))};
  call.workspace = bytes(buffers.workspace, plan::workspace_bytes(phases, phase), "workspace");
  call.exchanged = bytes(buffers.exchanged, bytes_read(phases, phase, 0), "exchanged");
  call.second_exchanged =
      bytes(buffers.second_exchanged, bytes_read(phases, phase, 1), "second_exchanged");
  // In a recompute perhaps no phase reads it: then it is empty.
  call.handed = bytes(buffers.handed, buffers.handed ? bytes_handed(phases, phase) : 0, "handed");
  return call;
}

template <class T>
void Chain<T>::run_forward(int unit, const Exec& exec, const UnitBuffers<T>& buffers,
                           const AbsentArrays<T>& absent) const {
  const ChainUnitDescription& own = this->unit(unit);
  const int phase = buffers.phase;
  auto call = make_call<ForwardCall<T>>(unit, exec, buffers, phase, own.forward);
  call.output = absent.output;
  call.losses = absent.losses;
  if (buffers.output && plan::writes_output(own.forward, phase)) {
    if (is_loss(unit))
      call.losses = view_as<compute_t<T>>(buffers.output).range(0, own.output);
    else
      call.output = buffers.output.range(0, own.output);
  }
  call.recomputes = buffers.recomputes;
  with_name(own.name, call.recomputes ? "forward that recomputes" : "forward",
            [&] { computed_[static_cast<std::size_t>(unit)].by_hand->forward(call); });
}

template <class T>
void Chain<T>::forward(int unit, const Exec& exec, const UnitBuffers<T>& buffers,
                       const AbsentArrays<T>& absent) const {
  if (built(unit) == nullptr) return run_forward(unit, exec, buffers, absent);
  const std::int64_t rows = shape_of(leaf_).rows();
  with_name(this->unit(unit).name, buffers.recomputes ? "forward that recomputes" : "forward", [&] {
    built(unit)->forward(exec, with_tokens(buffers, rows), {0, rows});
  });
}

template <class T>
void Chain<T>::backward(int unit, const Exec& exec, const UnitBuffers<T>& buffers,
                        compute_t<T> loss_scale, bool gradients_opened,
                        const AbsentArrays<T>& absent) const {
  const ChainUnitDescription& own = this->unit(unit);
  if (built(unit) != nullptr)
    return with_name(own.name, "backward", [&] {
      built(unit)->backward(exec, with_tokens(buffers, shape_of(leaf_).rows()), loss_scale,
                            gradients_opened);
    });
  const int forwards = is_loss(unit) ? static_cast<int>(own.forward.size()) : 0;
  if (buffers.phase < forwards) return run_forward(unit, exec, buffers, absent);
  const int phase = buffers.phase - forwards;
  auto call = make_call<BackwardCall<T>>(unit, exec, buffers, phase, own.backward);
  call.gradient = buffers.gradient.range(0, std::max(own.input, is_loss(unit) ? 0 : own.output));
  call.loss_scale = loss_scale;
  if (!own.parameters.empty())
    call.parameter_gradients = {buffers.parameter_gradients, absent.frozen_gradients,
                                own.parameters};
  call.adds_gradients = gradients_opened;
  if (const int tied = tied_to(unit); tied >= 0) {
    call.tied_gradients = {buffers.tied_gradients, absent.tied_frozen_gradients, parameters(tied)};
    const std::int64_t trained =
        description_.units[static_cast<std::size_t>(tied)].trained_elements();
    if (phase == 0 && buffers.tied_gradients)
      math::fill(exec, buffers.tied_gradients.range(0, trained), compute_t<T>(0));
  }
  with_name(own.name, "backward",
            [&] { computed_[static_cast<std::size_t>(unit)].by_hand->backward(call); });
}

namespace {

template <class T>
class ChainModel final : public Model {
 public:
  explicit ChainModel(Chain<T> chain) : chain_(std::move(chain)) {}

  DType dtype() const override { return dtype_of<T>; }
  int units() const override { return chain_.units(); }
  const std::vector<Parameter>& parameters(int unit) const override {
    return chain_.parameters(unit);
  }
  plan::ModelDescription description() const override { return chain_.description(); }
  int tensor_ranks() const override { return static_cast<int>(chain_.leaf().tensor_ranks); }
  LossTerms loss_terms() const override {
    return {chain_.leaf().samples, chain_.losses(), chain_losses};
  }
  void forward(int unit, const Exec& exec, const UnitBuffers<void>& buffers) const override {
    chain_.forward(unit, exec, typed<T>(buffers));
  }
  void backward(int unit, const Exec& exec, const UnitBuffers<void>& buffers, float loss_scale,
                bool gradients_opened) const override {
    chain_.backward(unit, exec, typed<T>(buffers), loss_scale, gradients_opened);
  }

 private:
  Chain<T> chain_;
};

}  // namespace

template <class T>
std::unique_ptr<const Model> make_chain_model(Chain<T> chain) {
  return std::make_unique<ChainModel<T>>(std::move(chain));
}

template class Chain<float>;
template class Chain<double>;
template class Chain<bf16>;
template class Chain<fp16>;
template std::unique_ptr<const Model> make_chain_model(Chain<float> chain);
template std::unique_ptr<const Model> make_chain_model(Chain<bf16> chain);
template std::unique_ptr<const Model> make_chain_model(Chain<fp16> chain);

}  // namespace ostrakon::model
