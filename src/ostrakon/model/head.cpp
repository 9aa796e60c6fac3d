// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/head.hpp>

#include <ostrakon/base/error.hpp>
#include <ostrakon/model/block_parameters.hpp>
#include <ostrakon/model/graph/operations.hpp>
#include <ostrakon/model/graph_unit.hpp>
#include <utility>

namespace ostrakon::model {

std::vector<Parameter> head_parameters(const DecoderSettings& settings) {
  std::vector<Parameter> parameters;
  add_norm(parameters, "norm", settings.norm, settings.width, settings.bias);
  if (settings.tie_embeddings) return parameters;
  add_linear(parameters, "output", settings.vocabulary, settings.width, false,
             settings.initializer_deviation);
  parameters.back().orthogonalize = false;
  return parameters;
}

void require_table(const Parameter& table, std::int64_t vocabulary, std::int64_t width) {
  require(table.name == "token.weight" && table.offset == 0 &&
              table.shape == std::vector<std::int64_t>{vocabulary, width},
          "the head is tied to ", table.full_name(), ", with ", table.elements(), " elements at ",
          table.offset, "; expected token.weight (", vocabulary, ", ", width, ") at 0");
}

template <class T>
std::unique_ptr<Unit<T>> make_head(const DecoderSettings& settings, const LeafShape& leaf,
                                   const Unit<T>* tied_to, const Frozen& frozen) {
  std::vector<Parameter> parameters = head_parameters(settings);
  const SegmentSizes sizes = lay_out_parameters(parameters, "head", frozen, leaf.tensor_pieces());
  LeafShape at_once = leaf;
  at_once.tensor_chunks = 1;
  graph::Operations<T> unit(at_once, {}, parameters, settings.width);
  int weight = unit.weight("output.weight");
  if (tied_to != nullptr) {
    const Parameter& table = tied_to->parameters().front();
    require_table(table, settings.vocabulary, settings.width);
    weight = unit.tied_weight(table);
  }
  const int x = leaf.decodes() ? unit.last_row(unit.input()) : unit.input();
  const int n = unit.norm(x, "norm", settings.norm, settings.norm_epsilon);
  const int output =
      leaf.decodes() ? unit.logits(n, weight) : unit.cross_entropy(n, weight, settings.vocabulary);
  auto head = make_graph_unit<T>("head", std::move(parameters), sizes, leaf,
                                 std::move(unit).take({output}));
  plan::UnitDescription& description = head->description();
  if (tied_to != nullptr) {
    description.tied_to = 0;
    description.tied_gradients = !tied_to->parameters().front().frozen;
  }
  description.sums_tied_apart = leaf.sums_by_leaf() && description.tied_gradients;
  return head;
}

#define OSTRAKON_INSTANTIATE(T)                                                            \
  template std::unique_ptr<Unit<T>> make_head<T>(const DecoderSettings&, const LeafShape&, \
                                                 const Unit<T>*, const Frozen&);
OSTRAKON_INSTANTIATE(float)
OSTRAKON_INSTANTIATE(double)
OSTRAKON_INSTANTIATE(bf16)
OSTRAKON_INSTANTIATE(fp16)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::model
