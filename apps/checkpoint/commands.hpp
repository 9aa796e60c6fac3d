// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/base/format.hpp>
#include <ostrakon/checkpoint/shard_map.hpp>

#include "../common/options.hpp"

/// The commands of ostrakon-checkpoint, and functions that they share.
namespace ostrakon::apps::checkpoint_program {

constexpr const char* program = "ostrakon-checkpoint";

Command inspect_command();
Command verify_command();
Command export_command();
Command import_command();
Command deck_command();
Command diff_command();
Command reshard_command();

std::int64_t elements_of(const std::vector<std::int64_t>& shape);

/// A table for people, escaped for a terminal: columns as wide as their widest text, two blanks
/// apart.
class Table {
 public:
  void add(std::vector<std::string> row) {
    for (std::string& cell : row) cell = printable(cell);
    rows_.push_back(std::move(row));
  }
  void print() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace ostrakon::apps::checkpoint_program
