// SPDX-License-Identifier: Apache-2.0
#include "published_rows.hpp"

#include <fstream>
#include <iomanip>
#include <ostrakon/base/error.hpp>
#include <sstream>

namespace ostrakon::published {
namespace {

std::vector<std::string> split(const std::string& line) {
  std::vector<std::string> parts;
  std::stringstream stream(line);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  if (!line.empty() && line.back() == ',') parts.emplace_back();
  return parts;
}

using CsvRow = std::map<std::string, std::string>;

/// Reads a file with a header and lines of comment, and no quotes.
std::vector<CsvRow> read_csv(const std::string& path) {
  std::ifstream file(path);
  require(file.good(), path, ": can't be read");
  std::vector<CsvRow> rows;
  std::vector<std::string> header;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line.front() == '#') continue;
    const std::vector<std::string> parts = split(line);
    if (header.empty()) {
      header = parts;
      continue;
    }
    require(parts.size() == header.size(), path, ": expected ", header.size(),
            " columns in: ", line);
    CsvRow& row = rows.emplace_back();
    for (std::size_t c = 0; c < parts.size(); ++c) row[header[c]] = parts[c];
  }
  return rows;
}

}  // namespace

std::vector<std::string> PublishedRow::dimensions() const {
  std::vector<std::string> all;
  const bool is_full = sharding == "full" || sharding == "keep";
  all.push_back(is_full                   ? (replicas() > 1 ? "HSDP" : "FSDP")
                : sharding == "optimizer" ? "ZeRO-1"
                                          : "DDP");
  if (tensor > 1) all.push_back("TP");
  if (pipeline > 1) all.push_back("PP");
  if (context > 1) all.push_back("CP");
  if (expert > 1) all.push_back("EP");
  return all;
}

std::vector<PublishedRow> read_published_rows(const std::string& path) {
  std::vector<PublishedRow> rows;
  for (const CsvRow& csv : read_csv(path)) {
    PublishedRow row;
    const auto text = [&](const char* key) { return csv.at(key); };
    const auto number = [&](const char* key) { return std::stoll(csv.at(key)); };
    const auto small = [&](const char* key) { return std::stoi(csv.at(key)); };
    row.id = text("id");
    row.source = text("source");
    row.group = text("group");
    row.machine = text("machine");
    row.stack = text("stack");
    row.model = text("model");
    row.layers = number("layers");
    row.width = number("width");
    row.heads = number("heads");
    row.kv_heads = number("kv_heads");
    row.head_width = number("head_width");
    row.ffn_width = number("ffn_width");
    row.vocabulary = number("vocabulary");
    row.gated = small("gated") != 0;
    row.rotary = small("rotary") != 0;
    row.tied = small("tied") != 0;
    row.experts = small("experts");
    row.experts_per_token = small("experts_per_token");
    row.ranks = small("gpus");
    row.ranks_per_node = small("gpus_per_node");
    row.sharding = text("sharding");
    row.shard_ranks = small("shard_ranks");
    row.tensor = small("tensor");
    row.pipeline = small("pipeline");
    row.chunks = small("chunks");
    row.context = small("context");
    row.expert = small("expert");
    row.micro_batch = number("micro_batch");
    row.micro_batches = small("micro_batches");
    row.sequence = number("sequence");
    row.checkpointing = text("checkpointing");
    row.autocast = small("autocast") != 0;
    row.sequence_parallel = small("sequence_parallel") != 0;
    row.reduce_bytes = small("reduce_bytes");
    row.accumulate_bytes = small("accumulate_bytes");
    row.blocking_launches = small("blocking_launches") != 0;
    row.odd = small("odd") != 0;
    const double tokens =
        static_cast<double>(row.micro_batch * row.micro_batches * row.sequence) * row.data_ranks();
    row.seconds = text("step_s").empty() ? tokens / row.ranks / std::stod(text("tokens_s_gpu"))
                                         : std::stod(text("step_s"));
    rows.push_back(row);
  }
  return rows;
}

std::map<std::string, Stack> read_stacks(const std::string& path) {
  std::map<std::string, Stack> stacks;
  for (const CsvRow& csv : read_csv(path))
    stacks[csv.at("stack")] = {std::stod(csv.at("rows")), std::stod(csv.at("attention")),
                               std::stod(csv.at("tensor_exposed")),
                               std::stod(csv.at("expert_rows"))};
  return stacks;
}

void write_stacks(const std::map<std::string, Stack>& stacks, const std::string& path) {
  std::ofstream file(path);
  file << "# SPDX-License-Identifier: Apache-2.0\n"
          "# Numbers of software stacks (struct Stack of published_rows.hpp), fitted to rows.csv "
          "by\n"
          "# fit_machines.\n"
          "stack,rows,attention,tensor_exposed,expert_rows\n"
       << std::setprecision(4);
  for (const auto& [name, stack] : stacks)
    file << name << "," << stack.rows << "," << stack.attention << "," << stack.tensor_exposed
         << "," << stack.expert_rows << "\n";
}

}  // namespace ostrakon::published
