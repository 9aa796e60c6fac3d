// SPDX-License-Identifier: Apache-2.0

// ostrakon-checkpoint: shows checkpoints and weight files, compares them, and converts weights to
// Hugging Face's format and back.

#include <algorithm>
#include <iomanip>
#include <iostream>
#include <ostrakon/base/error.hpp>

#include "../common/program.hpp"
#include "commands.hpp"

namespace ostrakon::apps::checkpoint_program {

std::int64_t elements_of(const std::vector<std::int64_t>& shape) {
  std::int64_t product = 1;
  for (const std::int64_t extent : shape) product *= extent;
  return product;
}

void Table::print() const {
  std::vector<std::size_t> widths;
  for (const auto& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i + 1 < row.size(); ++i)
      std::cout << "  " << std::left << std::setw(static_cast<int>(widths[i])) << row[i];
    if (!row.empty()) std::cout << "  " << row.back();
    std::cout << "\n";
  }
}

}  // namespace ostrakon::apps::checkpoint_program

int main(int argc, char** argv) {
  using namespace ostrakon::apps;
  using namespace ostrakon::apps::checkpoint_program;
  return run_serial_program(
      {program,
       R"(FILE, A and B are weights.h5 of ostrakon-train, one of its checkpoints (checkpoints/step-00001200,
or checkpoints/latest), or safetensors: one file, an index (model.safetensors.index.json), or a
folder with either; or a run's folder, for its weights.h5 or else its newest checkpoint. inspect and
verify take a folder of checkpoints, too. export takes no safetensors. An OUT that is there already is
refused, but for an empty folder where OUT is one.)",
       {inspect_command(), verify_command(), diff_command(), export_command(), import_command(),
        deck_command(), reshard_command()},
       {},
       "Exit status: 0 done, of diff: equal; 1 bad input, damage or failure, of diff: not equal."},
      argc, argv);
}
