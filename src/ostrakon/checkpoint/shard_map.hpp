// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <ostrakon/base/dtype.hpp>
#include <ostrakon/base/names.hpp>
#include <string>
#include <vector>

namespace ostrakon::checkpoint {

/// The kinds of arrays that a run keeps from step to step. A parameter may have all of them, or
/// fewer: frozen ones have no moments, and some optimizers keep one moment or none.
enum class State { parameters, first_moment, second_moment };
constexpr int states = 3;
/// The group of a file that arrays of a kind are in has its name, too.
constexpr Named<State> state_names[] = {{State::parameters, "parameters"},
                                        {State::first_moment, "first_moment"},
                                        {State::second_moment, "second_moment"}};
constexpr const char* name(State state) { return name_in(state_names, state); }

/// One row of a checkpoint's table of parameters.
struct ParameterEntry {
  std::string owner;  ///< as model::Parameter: "block.3", also where units hold several blocks
  std::string name;   ///< "attention.qkv.weight"
  std::vector<std::int64_t> shape;  ///< row-major
  std::string unit;                 ///< gathered with, in the run that saved
  bool frozen = false;
  /// Its elements are saved row by row; or where these are more than 1, the columns in so many
  /// equal pieces, one after the other, each row by row: as tensor ranks have them.
  std::int64_t column_pieces = 1;

  std::int64_t elements() const;
  /// "block.3/attention.qkv.weight", its place in a file's groups and in weights.h5.
  std::string path() const { return owner + "/" + name; }
};

/// Elements [first, first + count) of one kind of a parameter's state, in the order in which they
/// are saved: see ParameterEntry::column_pieces.
struct Slice {
  State state = State::parameters;
  int parameter = -1;  ///< index into the table
  std::int64_t first = 0;
  std::int64_t count = 0;
};

/// Who writes what: each element of the state is in one slice of one rank. It follows from the
/// plan, so that every rank knows that of all ranks, before step 1.
struct ShardMap {
  std::vector<ParameterEntry> parameters;
  std::array<DType, states> dtypes{};      ///< in which each kind is kept: fp32 or bf16
  std::vector<std::vector<Slice>> slices;  ///< of each rank, in the order of its memory
  std::vector<int> nodes;                  ///< of each rank

  int ranks() const { return static_cast<int>(slices.size()); }
  std::int64_t bytes(const Slice& slice) const {
    return slice.count * bytes_of(dtypes[static_cast<int>(slice.state)]);
  }
  /// The bytes of all slices of a rank together.
  std::int64_t bytes(int rank) const;
};

}  // namespace ostrakon::checkpoint
