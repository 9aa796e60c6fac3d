// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <ostrakon/base/error.hpp>
#include <ostrakon/model/array_packer.hpp>
#include <ostrakon/model/builder.hpp>
#include <ostrakon/model/graph/operations.hpp>
#include <ostrakon/model/leaf_shape.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace ostrakon::model {

/// What a Builder has made so far.
template <class T>
struct Builder<T>::State {
  State(std::string unit_, const LeafShape& leaf_, std::int64_t input, Frozen frozen_,
        FindTable find_table_, const Recompute& recompute, int inputs);

  const std::uint64_t id;
  std::string unit;
  std::string owner;  // of what is declared
  int parts = 0;
  LeafShape leaf;
  graph::Operations<T> operations;
  Frozen frozen;
  FindTable find_table;
  std::vector<Parameter> parameters;
  bool quantizes = false;  // whether weights of linear layers are gathered in 8 bits, from now on
  LoraSettings lora;
  std::vector<int> numbers;           // which of the graph's weights each of these is
  std::map<int, std::string> unread;  // values that nothing has taken, by what made them
  bool is_loss = false, reads_batch = false;
  std::set<int> inputs_read;
  std::string tied_to, table;
  std::int64_t batch_bytes = 0;
  const Parameter* tied = nullptr;
  int losses = -1;
  std::vector<int> passed_on;        // values that are handed over in front of the output
  std::vector<int> handed_besides;   // values that the unit behind takes besides the output
  std::vector<std::int64_t> counts;  // experts of each mixture

  graph::Graph& graph() { return operations.graph(); }
  std::int64_t pieces() const { return leaf.tensor_pieces(); }
  graph::Value& value(int v) { return graph().values[static_cast<std::size_t>(v)]; }
  bool has_columns(int v) { return value(v).tensor_distribution == graph::Distribution::columns; }
  /// Returns the number of columns of `v` over all tensor ranks.
  std::int64_t columns(int v) { return value(v).columns * (has_columns(v) ? pieces() : 1); }

  Value make(int v, const std::string& name) {
    unread[v] = name;
    return {v, id};
  }
  Value make_losses(int v, const std::string& name) {
    is_loss = true;
    losses = v;
    return make(v, name);
  }

  void require_value(const Value& x, const std::string& name) const {
    require(x.number >= 0, name,
            " takes no value; expected one that this Builder has made, or the unit's input");
    require(x.builder == id, name, " takes a value of another unit; expected one that this ",
            "Builder has made, or the unit's input");
  }
  /// Returns the number of x, and marks it as read by operation `name`; take_rows() also requires
  /// that tensor ranks have rows of it.
  int take(const Value& x, const std::string& name) {
    require_value(x, name);
    require(!is_loss, name, " comes behind the losses; expected them last");
    inputs_read.insert(x.number);
    unread.erase(x.number);
    return x.number;
  }
  int take_rows(const Value& x, const std::string& name) {
    const int v = take(x, name);
    require(!has_columns(v), name, " takes rows, but of ", value(v).name,
            " tensor ranks have columns; expected a linear layer between");
    return v;
  }

  /// The unit reads so many bytes of the batch, or more.
  void reads(std::int64_t bytes) {
    reads_batch = true;
    batch_bytes = std::max(batch_bytes, bytes);
  }

  /// Throws Error unless `extent` is at least 1 and small enough; require_cut() also requires that
  /// tensor pieces divide it.
  void require_size(const std::string& name, const char* what, std::int64_t extent) const {
    require(extent >= 1, name, " has ", extent, " ", what, "; expected at least 1");
    require(extent <= largest_chain / (4 * leaf.rows()), name, " has ", extent, " ", what,
            "; expected at most ", largest_chain, " bytes in all units");
  }
  void require_cut(const std::string& name, const char* what, std::int64_t extent) const {
    require_size(name, what, extent);
    require(extent % pieces() == 0, name, " has ", extent, " ", what, ", which can't be cut into ",
            pieces(), " tensor pieces; expected a multiple");
  }

  /// Its number among the weights.
  int declare(Parameter parameter);
  /// Declares the parameters of a linear layer.
  void declare(std::vector<Parameter> all) {
    for (Parameter& parameter : all) {
      parameter.quantized = quantizes && parameter.shape.size() > 1;
      declare(std::move(parameter));
    }
  }
  /// y of the layer of x with its adapter, if it has one, in `columns` columns from `first` on.
  int adapt(int y, int x, const std::string& layer, std::int64_t columns, std::int64_t first = 0) {
    if (!lora.has(layer)) return y;
    const std::int64_t inputs = value(x).columns;
    // Kaiming's uniform initializer with a = sqrt(5), as PEFT has it: a variance of 1 / (3 inputs).
    declare(Parameter::uniform(layer + ".lora_a.weight", {lora.rank, inputs},
                               1.0 / std::sqrt(3.0 * static_cast<double>(inputs))));
    Parameter up = Parameter::zeros(layer + ".lora_b.weight", {columns, lora.rank});
    up.decays = true;
    declare(std::move(up));
    return operations.adapt(y, x, layer, first, lora.scale());
  }
  /// A table of rows that are looked up, or give logits.
  int declare_table(const std::string& name, std::int64_t rows, std::int64_t columns,
                    double deviation, const Cut& cut = {}) {
    Parameter made = Parameter::normal(name, {rows, columns}, deviation);
    made.orthogonalize = false;
    made.cut = cut;
    return declare(std::move(made));
  }
  /// The weight of a norm, if it has one: at first it multiplies by 1.
  void declare_gain(const std::string& name, std::int64_t width, math::NormWeight gain,
                    const Cut& cut = {}) {
    if (gain == math::NormWeight::none) return;
    Parameter weight = Parameter::zeros(name + ".weight", {width});
    weight.cut = cut;
    if (gain == math::NormWeight::plain) weight.initializer = Initializer::ones;
    declare(std::move(weight));
  }

  /// The bias of logits, or -1 for none.
  int declare_head_bias(const std::string& name, std::int64_t words, const HeadSettings& settings) {
    const math::LogitForm& logits = settings.logits;
    require(std::isfinite(logits.scale) && logits.scale != 0.0, name, " has logits times ",
            logits.scale, "; expected a finite number other than 0");
    require(std::isfinite(logits.soft_cap) && logits.soft_cap >= 0.0, name,
            " has a cap of logits of ", logits.soft_cap, "; expected 0 for none, or more");
    return settings.bias ? declare(Parameter::zeros(name + ".bias", {words})) : -1;
  }
  /// Losses; where sequences are decoded logits.
  Value predict(int x, const std::string& name, const graph::Head& head) {
    reads(bytes_of<std::int32_t>(2 * leaf.rows()));
    return make_losses(
        leaf.decodes() ? operations.logits(x, head) : operations.cross_entropy(x, head), name);
  }

  /// The number of the table among the weights, with which the unit is tied to unit `to`.
  /// `what`: what takes rows of `columns` columns of it.
  int tie(const std::string& to, const std::string& what, std::int64_t columns);
  int copy_of(int v);
  /// What the unit hands over, with this value as its output.
  std::vector<int> hand_on(int v);
  Value apply(const Operation<T>& operation, bool makes_losses);
};

}  // namespace ostrakon::model
