// SPDX-License-Identifier: Apache-2.0
#include "checkpoint_commands.hpp"

#include <algorithm>
#include <iomanip>
#include <iostream>
#include <ostrakon/base/error.hpp>

namespace ostrakon::apps::checkpoint_program {

void require_two_files(const CommandLine& arguments, const char* command, const char* what) {
  require(arguments.files().size() == 2, command, " takes two files, ", what, "; found ",
          arguments.files().size());
}

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
