// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/unit.hpp>

#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <ostrakon/model/array_packer.hpp>
#include <stdexcept>

namespace ostrakon::model {
namespace {

std::int64_t divided_up(std::int64_t number, std::int64_t parts) {
  return (number + parts - 1) / parts;
}

std::vector<std::int64_t> sections_of(const Parameter& parameter) {
  return parameter.cut.sections.empty() ? std::vector<std::int64_t>{parameter.rows()}
                                        : parameter.cut.sections;
}

void require_pieces(const Parameter& parameter, std::int64_t pieces) {
  if (pieces == 1) return;
  const auto refused = [&](const char* what, std::int64_t number) {
    return text(parameter.full_name(), ": ", number, " ", what, " can't be cut into ", pieces,
                " pieces");
  };
  if (parameter.cut.by_columns) {
    require(parameter.columns() % pieces == 0, refused("columns", parameter.columns()));
    return;
  }
  const std::vector<std::int64_t> sections = sections_of(parameter);
  for (std::int64_t rows : sections)
    require(
        sections.size() == 1 ? (pieces - 1) * divided_up(rows, pieces) < rows : rows % pieces == 0,
        refused("rows", rows));
}

}  // namespace

std::int64_t Parameter::piece_rows(std::int64_t of) const {
  if (cut.by_columns) return rows();
  std::int64_t sum = 0;
  for (std::int64_t section : sections_of(*this)) sum += divided_up(section, of);
  return sum;
}

std::vector<ElementRuns> Parameter::elements_of_piece(std::int64_t piece) const {
  if (pieces == 1) return {ElementRuns::in_one(0, elements())};
  if (cut.by_columns) {
    const std::int64_t run = piece_columns(pieces);
    return {{piece * run, rows() * run, run, columns(), 0}};
  }
  std::vector<ElementRuns> all;
  std::int64_t begin = 0;
  for (std::int64_t section : sections_of(*this)) {
    const std::int64_t most = divided_up(section, pieces);
    const std::int64_t first = piece * most, end = std::min(section, first + most);
    all.push_back(ElementRuns::in_one((begin + first) * columns(), (end - first) * columns()));
    begin += section;
  }
  return all;
}

SegmentSizes lay_out_parameters(std::vector<Parameter>& parameters, std::int64_t pieces) {
  ArrayPacker frozen_segment(parameter_alignment), trained_segment(parameter_alignment);
  for (Parameter& parameter : parameters) {
    require_pieces(parameter, pieces);
    parameter.pieces = pieces;
    ArrayPacker& segment = parameter.frozen ? frozen_segment : trained_segment;
    parameter.offset = segment.place(parameter.piece_elements());
  }
  const std::int64_t of_frozen = round_up(frozen_segment.size(), parameter_alignment);
  const std::int64_t of_trained = round_up(trained_segment.size(), parameter_alignment);
  for (Parameter& parameter : parameters)
    parameter.piece_stride = parameter.frozen ? of_frozen : of_trained;
  return {pieces * of_frozen, pieces * of_trained};
}

SegmentSizes lay_out_parameters(std::vector<Parameter>& parameters, const std::string& owner,
                                const Frozen& frozen, std::int64_t pieces) {
  for (Parameter& parameter : parameters) {
    parameter.owner = owner;
    parameter.frozen = parameter.frozen || (frozen && frozen(parameter.full_name()));
  }
  return lay_out_parameters(parameters, pieces);
}

void count_parameters(const std::vector<Parameter>& parameters, plan::UnitDescription& unit) {
  std::int64_t count = 0;
  unit.frozen_count = 0;
  for (const Parameter& parameter : parameters) {
    count += parameter.elements();
    if (parameter.frozen) unit.frozen_count += parameter.elements();
  }
  unit.alignment_elements = unit.parameter_elements - count;
}

template <class T>
void Unit<T>::copy_sequence(const Exec&, const UnitBuffers<T>&, std::int64_t, std::int64_t) const {
  throw std::logic_error("unit " + description().name + " keeps nothing of decoded sequences");
}

template class Unit<float>;
template class Unit<double>;
template class Unit<bf16>;
template class Unit<fp16>;

}  // namespace ostrakon::model
