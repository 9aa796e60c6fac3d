// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <ostrakon/base/facts.hpp>
#include <ostrakon/checkpoint/shard_map.hpp>
#include <string>
#include <vector>

namespace ostrakon::checkpoint {

/// Bytes of a piece under one checksum, the last one over what is left: to read a part of a piece,
/// the blocks around it are read and checked.
constexpr std::int64_t block_bytes = std::int64_t{4} << 20;

/// What a run needs to resume, besides its arrays; the same on every rank. Sample order and initial
/// values come from generators keyed by seed and index, so the seed is all of the generators'
/// state.
struct Progress {
  std::int64_t step = 0;     ///< done
  std::int64_t updates = 0;  ///< of them, those that changed something
  std::int64_t samples = 0;  ///< of training data, taken: where the next step begins
  std::uint64_t seed = 0;
  std::int64_t skipped_in_a_row = 0;
  double loss_scale = 1.0;
  std::int64_t good_steps = 0;  ///< since the loss scale last changed
  struct Outliers {             ///< as optim::OutlierFilter::State
    std::int64_t steps = 0;
    double loss_mean = 0.0, loss_variance = 0.0;
    double gradient_norm_mean = 0.0, gradient_norm_variance = 0.0;
  };
  std::optional<Outliers> outliers;
};

/// A piece of a file, as a manifest describes it.
struct PieceEntry {
  Slice slice;
  int rank = 0;                          ///< that wrote it
  std::int64_t offset = 0;               ///< in the file, in bytes
  std::vector<std::uint64_t> checksums;  ///< XXH3 (64 bits) of each block
};

struct FileEntry {
  std::string name;
  std::int64_t bytes = 0;
  std::uint64_t structure = 0;  ///< checksum of all bytes that are in no piece, in order
  std::vector<PieceEntry> pieces;
};

/// All that a checkpoint says of itself. Written last: a folder with a manifest is complete.
struct Manifest {
  std::string program;        ///< "Ostrakon 0.3.0"
  std::int64_t sequence = 0;  ///< of the saves into one folder: later ones have larger ones
  Progress progress;
  std::uint64_t plan = 0;  ///< hash of the plan of a step
  int ranks = 0;           ///< that saved
  std::string deck;        ///< resolved
  std::string optimizer;   ///< its name in the deck
  std::string tokenizer;
  Facts data;  ///< data::Dataset::identity of the training data; empty: not known
  /// HuggingFaceConfig::text of the model that the run began with; empty: none is known.
  std::string huggingface_config;
  std::vector<ParameterEntry> parameters;
  std::array<DType, states> dtypes{};
  std::vector<FileEntry> files;

  std::int64_t bytes() const;  ///< of all files
};

/// The largest file that is read as a manifest.
constexpr std::int64_t most_manifest_bytes = std::int64_t{1} << 30;

/// Writes a manifest as text, JSON, with the text's own checksum in it. See
/// docs/checkpoint-format.md. Throws Error where it has more than `most` bytes, or must say what
/// such text can't.
std::string write_manifest(const Manifest& manifest, std::int64_t most = most_manifest_bytes);

/// The other way. Throws DamagedError, naming `path`, where the text's checksum is wrong, or there
/// is none; but Error where it is whole JSON that says it is a manifest of another version. Throws
/// Error where the checksum is right, so that the text is as it was written, but the rest is not:
/// an unknown key or value, counts further than any run gets, or a contradiction: a piece beyond
/// its file or its parameter, pieces that overlap, elements that no piece has, a name of a file
/// that is not a plain name in the folder, fewer or more checksums than blocks. So what it returns
/// can be trusted to address files.
Manifest read_manifest(const std::string& text, const std::string& path);

/// One file, or what one rank has written of it, as text between ranks. Throws Error where it is
/// none.
std::string write_file_entry(const FileEntry& file);
FileEntry read_file_entry(const std::string& text);

/// "<folder>/manifest.json"
std::string manifest_path(const std::string& folder);
/// The text of a checkpoint's manifest. Throws Error, naming the path, where it is missing or can't
/// be read, and DamagedError where it is too long.
std::string load_manifest(const std::string& folder);

}  // namespace ostrakon::checkpoint
