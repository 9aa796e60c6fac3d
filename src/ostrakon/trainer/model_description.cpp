// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/trainer/model_description.hpp>

#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <ostrakon/config/value.hpp>
#include <ostrakon/model/array_packer.hpp>
#include <ostrakon/optim/muon.hpp>
#include <ostrakon/trainer/expert_counts.hpp>

namespace ostrakon::train {
namespace {

/// Returns the floating-point operations to orthogonalize a matrix.
double orthogonalize_flops(std::int64_t rows, std::int64_t columns, int iterations) {
  const auto smaller = static_cast<double>(std::min(rows, columns));
  const auto larger = static_cast<double>(std::max(rows, columns));
  // An iteration has three products: with the transpose, of that with itself, and with the matrix.
  const double flops = 2.0 * smaller * smaller * (2.0 * larger + smaller);
  return iterations * flops;
}

/// Returns "64 x 5, normal 0.1, decays".
std::string words_of(const model::Parameter& parameter) {
  std::string words;
  for (const std::int64_t extent : parameter.shape)
    words += (words.empty() ? "" : " x ") + std::to_string(extent);
  switch (parameter.initializer) {
    case model::Initializer::zeros:
      words += ", zeros";
      break;
    case model::Initializer::ones:
      words += ", ones";
      break;
    case model::Initializer::normal:
      words += ", normal " + config::format_number(parameter.deviation);
      break;
    case model::Initializer::uniform:
      words += ", uniform " + config::format_number(parameter.deviation);
      break;
    case model::Initializer::log_uniform:
      words += ", log uniform";
      break;
  }
  if (parameter.decays) words += ", decays";
  if (parameter.frozen) words += ", frozen";
  if (!parameter.orthogonalize) words += ", not orthogonalized";
  if (parameter.quantized) words += ", gathered in 8 bits";
  return words;
}

void describe_quantized(const std::vector<model::Parameter>& parameters,
                        plan::UnitDescription& unit) {
  for (const model::Parameter& parameter : parameters)
    for (std::int64_t piece = 0; parameter.quantized && piece < parameter.pieces; ++piece)
      unit.quantized.push_back({!parameter.frozen,
                                parameter.offset + piece * parameter.piece_stride,
                                parameter.piece_elements()});
  std::sort(unit.quantized.begin(), unit.quantized.end(),
            [](const auto& a, const auto& b) { return a.offset < b.offset; });
}

}  // namespace

std::int64_t joined_matrix_bytes(const model::Parameter& parameter) {
  return parameter.pieces > 1 ? model::round_up(parameter.elements(), model::parameter_alignment) *
                                    static_cast<std::int64_t>(sizeof(float))
                              : 0;
}

plan::ModelDescription describe(const model::Model& model,
                                const optim::OptimizerSettings& optimizer) {
  plan::ModelDescription description = model.description();
  description.master_bytes = sizeof(float);
  description.sums_bytes =
      ExpertCounts(description, model.loss_terms()).sums() * sizeof(std::int64_t);
  for (int u = 0; u < model.units(); ++u) {
    plan::UnitDescription& unit = description.units[u];
    describe_quantized(model.parameters(u), unit);
    for (const model::Parameter& parameter : model.parameters(u)) {
      if (parameter.frozen || optim::rule_of(optimizer, parameter) != optim::OptimizerKind::muon)
        continue;
      const std::int64_t rows = parameter.shape[0], columns = parameter.shape[1];
      // A rank has its share of a matrix's pieces, and orthogonalizes the matrix once.
      const std::int64_t own_pieces = parameter.pieces / model.tensor_ranks();
      const auto own = static_cast<double>(std::max<std::int64_t>(own_pieces, 1));
      const double flops = orthogonalize_flops(rows, columns, optimizer.muon_iterations) / own;
      for (std::int64_t piece = 0; piece < parameter.pieces; ++piece)
        unit.whole_matrices.push_back(
            {parameter.offset + piece * parameter.piece_stride, parameter.piece_elements(), flops});
      unit.orthogonalize_workspace_bytes = std::max(
          unit.orthogonalize_workspace_bytes,
          joined_matrix_bytes(parameter) + optim::orthogonalize_workspace<float>(rows, columns));
    }
    std::sort(unit.whole_matrices.begin(), unit.whole_matrices.end(),
              [](const auto& a, const auto& b) { return a.offset < b.offset; });
  }
  return description;
}

Facts facts_of(const model::Model& model) {
  const model::LossTerms terms = model.loss_terms();
  Facts facts = {{"dtype", name(model.dtype())},
                 {"loss", text("a mean over ", terms.terms, " ", terms.name, " of ", terms.samples,
                               " samples")}};
  for (int u = 0; u < model.units(); ++u)
    for (const model::Parameter& parameter : model.parameters(u))
      facts.push_back({"parameter " + parameter.full_name(), words_of(parameter)});
  return facts;
}

}  // namespace ostrakon::train
