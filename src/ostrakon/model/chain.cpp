// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/chain.hpp>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <ostrakon/base/error.hpp>
#include <ostrakon/model/array_packer.hpp>
#include <ostrakon/model/graph_unit.hpp>
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

/// Names are parts of paths in checkpoints.
void require_name(const std::string& name, const std::string& what) {
  const auto is_plain = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.';
  };
  require(!name.empty() && name.front() != '.' && std::all_of(name.begin(), name.end(), is_plain),
          what, " has the name '", name, "'; expected letters, digits, '_', '-' and '.'");
}

void require_undamaged(const Parameter& parameter) {
  require_name(parameter.name, "a parameter");
  require(std::isfinite(parameter.deviation) && parameter.deviation >= 0.0, "parameter ",
          parameter.name, " has a deviation of ", parameter.deviation);
  double elements = 1.0;  // which outgrow 64 bits
  for (const std::int64_t extent : parameter.shape) elements *= static_cast<double>(extent);
  require(elements <= static_cast<double>(largest_chain), "parameter ", parameter.name,
          " is too large; expected at most ", largest_chain, " elements in all units");
}

/// What all arrays of the units take together.
void require_countable(const std::vector<plan::UnitDescription>& units) {
  double bytes = 0.0;
  for (const plan::UnitDescription& unit : units) {
    for (const std::int64_t own : {unit.parameter_elements, unit.output_bytes, unit.saved_bytes})
      bytes += static_cast<double>(own);
    for (const plan::Phases* phases : {&unit.forward, &unit.backward})
      for (const plan::Phase& phase : *phases)
        bytes += static_cast<double>(phase.workspace_bytes) +
                 static_cast<double>(phase.then ? phase.then->whole_bytes() : 0);
    require(bytes <= static_cast<double>(largest_chain), "unit ", unit.name,
            " is too large; expected at most ", largest_chain, " bytes in all units");
  }
}

}  // namespace

template <class T>
Chain<T>::Chain(const Units& units, LeafSize leaf, const Frozen& frozen) : leaf_(leaf) {
  require_possible(leaf);
  const auto& entries = units.entries();
  require(entries.size() >= 2, "a chain of ", entries.size(),
          " units; expected at least one, and then the one that computes the losses");
  for (const auto& entry : entries) {
    const bool is_last = &entry == &entries.back();
    add(entry, is_last, frozen);
    if (!is_last)
      description_.gradient_bytes =
          std::max(description_.gradient_bytes, description_.units.back().output_bytes);
  }
  require_countable(description_.units);
  require_different_names(frozen);
  description_.batch_bytes = leaf.bytes();
  description_.element_bytes = sizeof(T);
  description_.master_bytes = sizeof(compute_t<T>);
  description_.tensor_grain = leaf.tensor_grain;
  description_.tensor_ranks = static_cast<int>(leaf.tensor_ranks);
}

/// No two parameters of the units have one name, and `frozen`, if given, names one: where it is
/// not spelt as it is in the chain the parameter would stay trained.
template <class T>
void Chain<T>::require_different_names(const Frozen& frozen) const {
  std::map<std::string, std::string> owners;
  std::string first;
  bool freezes = false;
  for (int u = 0; u < units(); ++u)
    for (const Parameter& parameter : parameters(u)) {
      const std::string name = parameter.full_name(), &own = unit(u).description().name;
      const auto [found, is_new] = owners.emplace(name, own);
      require(is_new, "units ", found->second, " and ", own,
              " both have a parameter with the full name ", name);
      if (first.empty()) first = name;
      freezes = freezes || (frozen && frozen(name));
    }
  require(!frozen || freezes, "frozen, the third argument of Chain, names no parameter of the ",
          "chain, ", first.empty() ? "which has none" : "the first of which is ", first);
}

template <class T>
typename Builder<T>::Built Chain<T>::build(const typename Units::Entry& entry,
                                           const Frozen& frozen) const {
  const LeafShape shape = shape_of(leaf_);
  const std::int64_t input =
      units_.empty() ? 0 : description_.units.back().output_bytes / bytes_of<T>(shape.own_rows());
  const auto find_table = [&](const std::string& other) -> const Parameter* {
    for (std::size_t u = 0; u < units_.size(); ++u)
      for (const Parameter& parameter : units_[u]->parameters())
        if (description_.units[u].name == other && parameter.name == tables_[u]) return &parameter;
    return nullptr;
  };
  Builder<T> builder(entry.name, shape, input, frozen, find_table, {});
  try {
    const auto made = entry.function(builder, builder.input());
    return std::move(builder).build(made);
  } catch (const std::logic_error& error) {
    throw Error(text("its program can't be derived: ", error.what()));
  }
}

template <class T>
void Chain<T>::add(const typename Units::Entry& entry, bool is_last, const Frozen& frozen) {
  std::vector<plan::UnitDescription>& units = description_.units;
  require_name(entry.name, text("unit ", units.size(), " of a chain"));
  for (const plan::UnitDescription& other : units)
    require(other.name != entry.name, "two units have the name ", entry.name);
  with_name(entry.name, "as it is described", [&] {
    auto built = build(entry, frozen);
    plan::UnitDescription planned = built.unit->description();
    require(!built.has_experts_behind, "it has a mixture of experts; expected 1 tensor piece");
    require(built.batch_bytes <= leaf_.bytes(), "it reads ", built.batch_bytes,
            " bytes of a batch, but those of a leaf are ", leaf_.bytes());
    require(built.is_loss || !is_last,
            "it is the last and computes no losses: expected losses or cross_entropy");
    require(!built.is_loss || is_last, "it computes losses, but is not the last unit");
    require(!units.empty() || built.reads_batch,
            "it is the first and reads nothing: expected floats, an embedding, or reads_batch");
    for (const Parameter& parameter : built.unit->parameters()) require_undamaged(parameter);
    count_parameters(built.unit->parameters(), planned);
    for (std::size_t u = 0; u < units.size(); ++u)
      if (units[u].name == built.tied_to) planned.tied_to = static_cast<int>(u);
    units.push_back(std::move(planned));
    units_.push_back(std::move(built.unit));
    tables_.push_back(built.table);
  });
}

template <class T>
void Chain<T>::forward(int unit, const Exec& exec, const UnitBuffers<T>& buffers) const {
  const std::int64_t rows = shape_of(leaf_).rows();
  with_name(this->unit(unit).description().name,
            buffers.recomputes ? "forward that recomputes" : "forward",
            [&] { this->unit(unit).forward(exec, with_tokens(buffers, rows)); });
}

template <class T>
void Chain<T>::backward(int unit, const Exec& exec, const UnitBuffers<T>& buffers,
                        compute_t<T> loss_scale, bool adds_gradients) const {
  with_name(this->unit(unit).description().name, "backward", [&] {
    this->unit(unit).backward(exec, with_tokens(buffers, shape_of(leaf_).rows()), loss_scale,
                              adds_gradients);
  });
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
                bool adds_gradients) const override {
    chain_.backward(unit, exec, typed<T>(buffers), loss_scale, adds_gradients);
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
