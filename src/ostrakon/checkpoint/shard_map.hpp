// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <ostrakon/base/dtype.hpp>
#include <ostrakon/base/names.hpp>
#include <string>
#include <vector>

namespace ostrakon::checkpoint {

/// The kinds of arrays that are saved. A parameter may have fewer of them: frozen parameters have
/// no moments and no average, and some optimizers keep one moment or none.
enum class State { parameters, first_moment, second_moment, average };
constexpr int states = 4;
/// All states, in the order in which they are saved.
constexpr State all_states[states] = {State::parameters, State::first_moment, State::second_moment,
                                      State::average};
/// Also the names of the groups in a file.
constexpr Named<State> state_names[] = {{State::parameters, "parameters"},
                                        {State::first_moment, "first_moment"},
                                        {State::second_moment, "second_moment"},
                                        {State::average, "average"}};
constexpr const char* name(State state) { return name_in(state_names, state); }

/// One row of a checkpoint's table of parameters.
struct ParameterEntry {
  std::string owner;  ///< as in model::Parameter: "block.3", also if units have several blocks
  std::string name;   ///< "attention.qkv.weight"
  std::vector<std::int64_t> shape;  ///< row-major
  std::string unit;                 ///< its unit in the run that saved
  bool frozen = false;
  /// 1: elements are saved row-major. Above 1: the columns are divided into so many equal pieces,
  /// saved one after the other, each row-major, as tensor ranks hold them.
  std::int64_t column_pieces = 1;

  std::int64_t elements() const;
  /// Returns "block.3/attention.qkv.weight", the path in a file's groups and in weights.h5.
  std::string path() const { return owner + "/" + name; }
};

/// Elements [first, first + count) of one kind of a parameter's state, in the order in which they
/// are saved: see ParameterEntry::column_pieces.
struct Slice {
  State state = State::parameters;
  int parameter = -1;  ///< index in the table
  std::int64_t first = 0;
  std::int64_t count = 0;
};

/// The slices that each rank saves: each element of the state is in one slice of one rank. The map
/// follows from the plan, so every rank knows it for all ranks before step 1.
struct ShardMap {
  std::vector<ParameterEntry> parameters;
  std::array<DType, states> dtypes{};      ///< dtype of each kind: fp32 or bf16
  std::vector<std::vector<Slice>> slices;  ///< per rank, in the order of its memory
  std::vector<int> nodes;                  ///< node of each rank

  int ranks() const { return static_cast<int>(slices.size()); }
  std::int64_t bytes(const Slice& slice) const {
    return slice.count * bytes_of(dtypes[static_cast<int>(slice.state)]);
  }
  /// Returns the total bytes of a rank's slices.
  std::int64_t bytes(int rank) const;
};

}  // namespace ostrakon::checkpoint
