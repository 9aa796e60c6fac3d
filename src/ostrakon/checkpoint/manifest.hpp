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

/// Bytes of a piece per checksum; the last block is shorter. To read a part of a piece, its blocks
/// are read and checked.
constexpr std::int64_t block_bytes = std::int64_t{4} << 20;

/// Everything that a run needs to resume besides its arrays, the same on every rank. Sample order
/// and initial values come from generators keyed by seed and index, so the seed is all of the
/// generators' state.
struct Progress {
  std::int64_t step = 0;     ///< steps done
  std::int64_t updates = 0;  ///< steps that were not skipped
  std::int64_t samples = 0;  ///< training samples used so far
  std::uint64_t seed = 0;
  std::int64_t audited_step = 0;  ///< the last step whose audit has passed; 0: none
  std::int64_t skipped_in_a_row = 0;
  double loss_scale = 1.0;
  std::int64_t good_steps = 0;  ///< steps since the loss scale changed
  struct Outliers {             ///< as optim::OutlierFilter::State
    std::int64_t steps = 0;
    double loss_mean = 0.0, loss_variance = 0.0;
    double gradient_norm_mean = 0.0, gradient_norm_variance = 0.0;
  };
  std::optional<Outliers> outliers;
};

/// A piece of a file, as described by a manifest.
struct PieceEntry {
  Slice slice;
  int rank = 0;                          ///< the rank that wrote it
  std::int64_t offset = 0;               ///< in the file, in bytes
  std::vector<std::uint64_t> checksums;  ///< XXH3 (64 bits) of each block
};

struct FileEntry {
  std::string name;
  std::int64_t bytes = 0;
  std::uint64_t structure = 0;  ///< checksum of all bytes outside of pieces, in order
  std::vector<PieceEntry> pieces;
};

/// The description of a checkpoint. Written last: a folder with a manifest is complete.
struct Manifest {
  std::string program;        ///< "Ostrakon 0.3.0"
  std::int64_t sequence = 0;  ///< grows with each save into the folder
  Progress progress;
  std::uint64_t plan = 0;  ///< hash of the step plan
  int ranks = 0;           ///< number of ranks that saved
  std::string deck;        ///< the resolved deck
  std::string optimizer;   ///< its name in the deck
  std::string tokenizer;
  Facts data;  ///< data::facts_to_keep of the training data; empty: unknown
  /// HuggingFaceConfig::text of the model that the run began with; empty: unknown.
  std::string huggingface_config;
  std::vector<ParameterEntry> parameters;
  std::array<DType, states> dtypes{};
  std::vector<FileEntry> files;

  std::int64_t bytes() const;  ///< total size of all files
};

/// Size limit of a manifest.
constexpr std::int64_t most_manifest_bytes = std::int64_t{1} << 30;

/// Writes a manifest as JSON with a checksum of its own text. See docs/checkpoint-format.md. Throws
/// Error if it has more than `most` bytes, or a value that JSON can't hold.
std::string write_manifest(const Manifest& manifest, std::int64_t most = most_manifest_bytes);

/// Reads a manifest. Throws DamagedError, naming `path`, if the text's checksum is wrong or
/// missing; but Error if it is complete JSON of a manifest of another version. Throws Error if the
/// checksum is right, so that the text is undamaged, but the content is invalid: an unknown key or
/// value, counts beyond those of any run, or a contradiction: a piece beyond its file or its
/// parameter, overlapping pieces, elements in no piece, a file name that is not a plain name in the
/// folder, a number of checksums other than of blocks. So the returned manifest can be trusted to
/// address files.
Manifest read_manifest(const std::string& text, const std::string& path);

/// Converts a file entry, or one rank's part of it, to text for other ranks, and back. Throws Error
/// for invalid text.
std::string write_file_entry(const FileEntry& file);
FileEntry read_file_entry(const std::string& text);

/// Returns "<folder>/manifest.json".
std::string manifest_path(const std::string& folder);
/// Returns the text of a checkpoint's manifest. Throws Error, naming the path, if it is missing or
/// can't be read, and DamagedError if it is too long.
std::string load_manifest(const std::string& folder);

}  // namespace ostrakon::checkpoint
