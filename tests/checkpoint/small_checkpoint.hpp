// SPDX-License-Identifier: Apache-2.0
#pragma once

// Checkpoints of a few parameters with odd shapes, whose values are given by a formula, as several
// ranks would write them; here the ranks write one after the other, in one process.

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <ostrakon/checkpoint/file_layout.hpp>
#include <ostrakon/checkpoint/folder.hpp>
#include <ostrakon/checkpoint/manifest.hpp>
#include <ostrakon/checkpoint/reader.hpp>
#include <ostrakon/checkpoint/shard_writer.hpp>
#include <string>
#include <vector>

namespace ostrakon::checkpoint::testing {

constexpr std::array<State, states> all_states = {State::parameters, State::first_moment,
                                                  State::second_moment, State::average};

/// Returns values as stored in memory and files: fp32, or their upper halves.
inline std::string bytes_of_values(const std::vector<float>& values, DType dtype) {
  std::string bytes;
  for (const float value : values) {
    char all[sizeof value];
    std::memcpy(all, &value, sizeof value);
    bytes.append(dtype == DType::fp32 ? all : all + 2, dtype == DType::fp32 ? 4 : 2);
  }
  return bytes;
}

class SmallCheckpoint {
 public:
  /// `large`: adds a parameter with several blocks. `version`: changes the values.
  SmallCheckpoint(int ranks, Files files, bool large = false, int version = 0)
      : files_(files), version_(version) {
    map_.dtypes = {DType::fp32, DType::bf16, DType::fp32, DType::fp32};
    add("embedding", "token.weight", {17, 3}, false);
    add("block.0", "attention.qkv.weight", {129, 33}, false);
    add("block.0", "norm.weight", {1}, false);
    add("block.1", "attention.qkv.weight", {2, 3, 4}, false);
    add("block.1", "frozen.weight", {5, 7}, true);
    add("head", "bias", {7}, false);
    if (large) add("head", "weight", {1100, 2003}, false);
    map_.slices.resize(static_cast<std::size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank) {
      map_.nodes.push_back(rank / 2);
      for (const State state : all_states) add_slices(rank, state);
    }
  }

  const ShardMap& map() const { return map_; }
  /// Sets the dtype of each kind; to be called before anything is written.
  void set_dtypes(const std::array<DType, states>& dtypes) { map_.dtypes = dtypes; }
  /// Sets the pieces in which a matrix is saved; to be called before anything is written.
  void set_column_pieces(int parameter, std::int64_t pieces) {
    map_.parameters[static_cast<std::size_t>(parameter)].column_pieces = pieces;
  }
  int ranks() const { return map_.ranks(); }
  std::int64_t elements(int parameter) const {
    return map_.parameters[static_cast<std::size_t>(parameter)].elements();
  }

  std::int64_t column_pieces(int parameter) const {
    return map_.parameters[static_cast<std::size_t>(parameter)].column_pieces;
  }

  bool has(State state, int parameter) const {
    return state == State::parameters ||
           !map_.parameters[static_cast<std::size_t>(parameter)].frozen;
  }

  /// Returns a small integer, which bf16 holds exactly.
  float value(State state, int parameter, std::int64_t element) const {
    return static_cast<float>(
        (static_cast<int>(state) * 83 + parameter * 29 + version_ * 11 + element * 7) % 251 - 125);
  }
  /// Returns all elements of a matrix in the order of `pieces` pieces of its columns.
  std::vector<std::int64_t> order(int parameter, std::int64_t pieces) const {
    const std::vector<std::int64_t>& shape =
        map_.parameters[static_cast<std::size_t>(parameter)].shape;
    std::vector<std::int64_t> elements;
    for (std::int64_t piece = 0; piece < pieces; ++piece) {
      for (std::int64_t row = 0; row < shape[0]; ++row) {
        for (std::int64_t column = 0; column < shape[1]; ++column) {
          if (column / (shape[1] / pieces) == piece) elements.push_back(row * shape[1] + column);
        }
      }
    }
    return elements;
  }
  /// Returns the bytes of a slice as stored, in the order of `pieces` pieces of its columns.
  std::string numbers(const Slice& slice, std::int64_t pieces = 1) const {
    std::vector<float> values;
    const std::vector<std::int64_t> elements =
        pieces > 1 ? order(slice.parameter, pieces) : std::vector<std::int64_t>();
    for (std::int64_t i = slice.first; i < slice.first + slice.count; ++i) {
      const std::int64_t element = pieces > 1 ? elements[static_cast<std::size_t>(i)] : i;
      values.push_back(value(slice.state, slice.parameter, element));
    }
    return bytes_of_values(values, map_.dtypes[static_cast<std::size_t>(slice.state)]);
  }

  /// Writes what rank `rank` saves into `folder`.
  FileEntry write_rank(const std::string& folder, const FileLayout& layout, int rank,
                       const WriteOptions& options = {}) const {
    std::string block;
    const Values values = [&](std::size_t piece, std::int64_t first, std::int64_t bytes) {
      Slice part = layout.pieces[piece].slice;
      const std::int64_t width = bytes_of(map_.dtypes[static_cast<std::size_t>(part.state)]);
      part.first += first / width;
      part.count = bytes / width;
      block = numbers(part, column_pieces(part.parameter));
      return static_cast<const void*>(block.data());
    };
    return write_shard(folder, layout, rank, values, options);
  }

  /// Writes the files of all ranks, and returns the manifest.
  Manifest write_files(const std::string& folder, std::int64_t step, std::int64_t sequence,
                       const Progress& progress = {}) const {
    Manifest manifest;
    manifest.progress = progress;
    manifest.program = "Ostrakon test";
    manifest.sequence = sequence;
    manifest.progress.step = step;
    manifest.ranks = ranks();
    manifest.deck = "model: {}\n";
    manifest.optimizer = "adamw";
    manifest.tokenizer = "bytes";
    manifest.parameters = map_.parameters;
    manifest.dtypes = map_.dtypes;
    const std::vector<int> file_of_rank = file_of_ranks(map_, files_);
    manifest.files.resize(
        static_cast<std::size_t>(*std::max_element(file_of_rank.begin(), file_of_rank.end()) + 1));
    // The last rank is first: the lowest rank creates the file, but any rank may write first.
    for (int rank = ranks() - 1; rank >= 0; --rank) {
      const FileEntry written = write_rank(folder, lay_out(map_, files_, rank), rank);
      FileEntry& file =
          manifest.files[static_cast<std::size_t>(file_of_rank[static_cast<std::size_t>(rank)])];
      file.name = written.name;
      file.bytes = written.bytes;
      file.structure = written.structure;
      file.pieces.insert(file.pieces.end(), written.pieces.begin(), written.pieces.end());
    }
    for (FileEntry& file : manifest.files) {
      std::sort(file.pieces.begin(), file.pieces.end(),
                [](const PieceEntry& a, const PieceEntry& b) { return a.offset < b.offset; });
    }
    return manifest;
  }

  /// Saves; returns the checkpoint's path.
  std::string save(const Folder& folder, std::int64_t step, std::int64_t sequence,
                   const Progress& progress = {}) const {
    const std::string path = folder.begin(step);
    const std::string place =
        folder.commit(step, write_manifest(write_files(path, step, sequence, progress))).path;
    folder.mark_latest(step);
    return place;
  }

 private:
  void add(const std::string& owner, const std::string& parameter,
           const std::vector<std::int64_t>& shape, bool frozen) {
    map_.parameters.push_back({owner, parameter, shape, owner, frozen});
  }

  /// Divides arrays unevenly, each kind differently; some ranks have nothing of small arrays.
  void add_slices(int rank, State state) {
    for (int p = 0; p < static_cast<int>(map_.parameters.size()); ++p) {
      if (!has(state, p)) continue;
      const std::int64_t all = elements(p);
      const auto cut = [&](int r) {
        if (r == 0) return std::int64_t{0};
        if (r == ranks()) return all;
        return std::min(all, all * r / ranks() + static_cast<int>(state));
      };
      const std::int64_t first = cut(rank), end = cut(rank + 1);
      if (end > first) {
        map_.slices[static_cast<std::size_t>(rank)].push_back({state, p, first, end - first});
      }
    }
  }

  Files files_;
  int version_;
  ShardMap map_;
};

/// Whether a slice of a checkpoint reads back as it was saved.
inline bool holds(CheckpointReader& reader, const SmallCheckpoint& saved, const Slice& slice) {
  const std::string expected = saved.numbers(slice);
  std::string found(expected.size(), '?');
  reader.read(slice.state, slice.parameter, slice.first, slice.count, found.data());
  return found == expected;
}

/// Whether all slices read back as they were saved.
inline bool holds(CheckpointReader& reader, const SmallCheckpoint& saved) {
  for (const State state : all_states) {
    for (int p = 0; p < static_cast<int>(saved.map().parameters.size()); ++p) {
      if (reader.has(state, p) != saved.has(state, p)) return false;
      const Slice all{state, p, 0, saved.elements(p)};
      if (saved.has(state, p) && !holds(reader, saved, all)) return false;
    }
  }
  return true;
}

}  // namespace ostrakon::checkpoint::testing
