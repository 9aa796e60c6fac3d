// SPDX-License-Identifier: Apache-2.0
#include "deck_rows.hpp"

#include <algorithm>
#include <map>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/input.hpp>
#include <ostrakon/config/deck.hpp>
#include <ostrakon/config/machine_file.hpp>
#include <ostrakon/config/stack_file.hpp>
#include <ostrakon/simulate/prediction.hpp>
#include <ostrakon/trainer/resolve.hpp>
#include <sstream>

namespace ostrakon::published {
namespace {

constexpr std::size_t most_bytes = std::size_t{1} << 20;  // of a deck, a stack, an index

std::vector<std::string> split(const std::string& line) {
  std::vector<std::string> parts;
  std::stringstream stream(line);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

}  // namespace

std::vector<MeasuredRow> read_index(const std::string& folder) {
  const std::string path = folder + "/index.csv";
  std::stringstream file(read_text(path, most_bytes));
  std::vector<MeasuredRow> rows;
  std::vector<std::string> header;
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string> parts = split(line);
    if (header.empty()) {
      header = parts;
      continue;
    }
    require(parts.size() == header.size(), path, ": expected ", header.size(),
            " columns in: ", line);
    std::map<std::string, std::string> csv;
    for (std::size_t c = 0; c < parts.size(); ++c) csv[header[c]] = parts[c];
    rows.push_back({csv.at("id"), csv.at("group"), csv.at("machine"), csv.at("stack"),
                    csv.at("deck"), csv.at("stack_file"), std::stoi(csv.at("ranks")),
                    std::stoi(csv.at("ranks_per_node")), std::stod(csv.at("seconds"))});
  }
  return rows;
}

PlannedRow::PlannedRow(const MeasuredRow& row)
    : row_(row), stack_(config::read_stack(read_text(row.stack_file, most_bytes), row.stack_file)) {
  config::Settings settings = config::read_settings(read_text(row.deck, most_bytes), row.deck, {});
  settings.processor = config::processor_with(math::KernelForm::device_on_chip);
  const std::int64_t of_each =
      settings.leaves() / (row.ranks / settings.tensor / settings.pipeline);
  std::vector<std::int64_t> counts = {of_each};
  const std::int64_t few = std::max<std::int64_t>(2, settings.pipeline);
  if (of_each > 2 * few) counts = {few, 2 * few};
  const std::int64_t batch = settings.training.global_batch_size;
  for (const std::int64_t count : counts) {
    settings.training.global_batch_size = batch / of_each * count;
    steps_.push_back(apps::plan_step(settings, row.ranks, row.ranks_per_node, stack_));
    micro_batches_.push_back(static_cast<double>(count));
  }
  micro_batches_.push_back(static_cast<double>(of_each));
}

double PlannedRow::seconds(const simulate::Machine& machine) const {
  const auto of = [&](const apps::PlannedStep& step) {
    return simulate::seconds_if_equally_fast(step.plans(), machine, step.ranks_per_node,
                                             simulate::Streams::concurrent);
  };
  double seconds = of(steps_.front());
  if (steps_.size() > 1) {
    const double each = (of(steps_.back()) - seconds) / (micro_batches_[1] - micro_batches_[0]);
    seconds += each * (micro_batches_.back() - micro_batches_[0]);
  }
  return seconds * (1.0 + simulate::added_by_variation(machine, row_.ranks));
}

}  // namespace ostrakon::published
