// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/checkpoint/shard_map.hpp>
#include <string>
#include <vector>

#include "command_line.hpp"

/// The commands of ostrakon-checkpoint, and functions that they share. Each command returns the
/// exit status, and throws Error on failure.
namespace ostrakon::apps::checkpoint_program {

constexpr const char* program = "ostrakon-checkpoint";

int inspect(int argc, char** argv);
int verify(int argc, char** argv);
int export_weights(int argc, char** argv);
int import_weights(int argc, char** argv);
int diff(int argc, char** argv);
int reshard(int argc, char** argv);

/// Throws Error unless there are two files; `what` names them in the message.
void require_two_files(const CommandLine& arguments, const char* command, const char* what);

std::int64_t elements_of(const std::vector<std::int64_t>& shape);

/// All states of a checkpoint, in order.
constexpr checkpoint::State all_states[] = {checkpoint::State::parameters,
                                            checkpoint::State::first_moment,
                                            checkpoint::State::second_moment};

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
