// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/embedding.hpp>

#include <ostrakon/model/graph/operations.hpp>
#include <ostrakon/model/graph_unit.hpp>
#include <utility>

namespace ostrakon::model {

std::vector<Parameter> embedding_parameters(const DecoderSettings& settings, std::int64_t tokens) {
  const double deviation = settings.initializer_deviation;
  std::vector<Parameter> tables = {
      Parameter::normal("token.weight", {settings.vocabulary, settings.width}, deviation)};
  if (settings.positions == Positions::learned)
    tables.push_back(Parameter::normal(
        "position.weight", {settings.position_rows(tokens), settings.width}, deviation));
  for (Parameter& table : tables) table.orthogonalize = false;
  if (tables.size() > 1) tables.back().cut.by_columns = true;
  return tables;
}

template <class T>
std::unique_ptr<Unit<T>> make_embedding(const DecoderSettings& settings, const LeafShape& leaf,
                                        const Frozen& frozen) {
  std::vector<Parameter> parameters = embedding_parameters(settings, leaf.tokens);
  const SegmentSizes sizes =
      lay_out_parameters(parameters, "embedding", frozen, leaf.tensor_pieces());
  LeafShape at_once = leaf;
  at_once.tensor_chunks = 1;
  graph::Operations<T> unit(at_once, {}, parameters, 0);
  const int y =
      unit.embedding(settings.vocabulary, settings.width, settings.positions == Positions::learned);
  return make_graph_unit<T>("embedding", std::move(parameters), sizes, leaf,
                            std::move(unit).take({y}));
}

#define OSTRAKON_INSTANTIATE(T)                                                                 \
  template std::unique_ptr<Unit<T>> make_embedding<T>(const DecoderSettings&, const LeafShape&, \
                                                      const Frozen&);
OSTRAKON_INSTANTIATE(float)
OSTRAKON_INSTANTIATE(double)
OSTRAKON_INSTANTIATE(bf16)
OSTRAKON_INSTANTIATE(fp16)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::model
