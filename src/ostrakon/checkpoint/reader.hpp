// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <ostrakon/checkpoint/manifest.hpp>
#include <ostrakon/checkpoint/parameter_source.hpp>
#include <string>
#include <utility>
#include <vector>

namespace ostrakon::checkpoint {

/// A slice to read, and the host memory for its values.
struct Wanted {
  Slice slice;  ///< elements in the order of column_pieces
  void* values = nullptr;
  std::int64_t column_pieces = 1;  ///< order of columns: see ParameterEntry
};

/// Reads any slice of any array of a checkpoint, whatever ranks wrote it, in one process. Every
/// returned byte has passed its checksum. Does not use HDF5: the manifest has the offsets of
/// values. Throws DamagedError, naming the file, if a file has another size or is damaged, and
/// Error if one is missing or can't be read.
class CheckpointReader : public ParameterSource {
 public:
  /// `folder`: the folder of the manifest.
  explicit CheckpointReader(const std::string& folder);
  /// Takes the text of the manifest from another rank.
  CheckpointReader(const std::string& folder, const std::string& manifest);
  ~CheckpointReader() override;

  const std::string& folder() const { return folder_; }
  const Manifest& manifest() const { return manifest_; }

  /// Returns the index in the table of parameters; -1 if it is not there.
  int find(const std::string& owner, const std::string& parameter) const;
  bool has(State state, int parameter) const;

  /// values (host memory) = elements [first, first + count) of an array, row-major, in the dtype in
  /// which it is saved: manifest().dtypes.
  void read(State state, int parameter, std::int64_t first, std::int64_t count, void* values);
  /// Reads a slice in the order in which its elements are saved.
  void read_as_saved(const Slice& slice, void* values);

  /// Reads several slices with several threads, so that reading and checking overlap.
  void read(const std::vector<Wanted>& wanted);

  /// From now on a ParameterSource of the averages that training.ema keeps, where parameters have
  /// one; frozen parameters have none. Throws Error if there is no average.
  void take_averages();

  /// Reads State::parameters, or what take_averages() says; see ParameterSource.
  void read(const std::string& owner, const std::string& parameter,
            const std::vector<std::int64_t>& shape, std::int64_t first, std::int64_t count,
            float* values) override;

  /// Checks that file `file` of the manifest exists, has the right size, and that its bytes outside
  /// of values are unchanged. Cheap.
  void verify_structure(int file);
  /// Reads and checks all values of file `file`.
  void verify_numbers(int file);
  /// Calls verify_structure and verify_numbers for all files.
  void verify() override;
  bool checks_what_it_reads() const override { return true; }

 private:
  /// Where the elements of an array from `first` on are.
  struct Location {
    std::int64_t first = 0;
    int file = 0;
    int piece = 0;
  };
  /// A block of a piece.
  struct Block {
    int file = -1;
    int piece = -1;
    std::int64_t block = -1;

    bool operator==(const Block& other) const {
      return file == other.file && piece == other.piece && block == other.block;
    }
  };

  /// A requested part of a block.
  struct Part {
    Block block;
    std::int64_t skipped = 0, taken = 0;  ///< bytes of the block
    char* values = nullptr;               ///< destination; null: the block is only checked
  };
  /// Open files and memory for one block, for one thread.
  class Lane;

  void add_locations();
  std::vector<Location>& locations(State state, int parameter);
  const std::vector<Location>& locations(State state, int parameter) const;
  const FileEntry& entry(int file) const;
  const PieceEntry& entry(const Block& block) const;
  std::int64_t width(State state) const;
  std::int64_t piece_bytes(const PieceEntry& piece) const;
  std::int64_t block_size(const Block& block) const;
  void add_parts(const Wanted& wanted, std::vector<Part>& parts) const;
  void sort(std::vector<Part>& parts) const;
  void add_saved_parts(const Slice& slice, char* out, std::vector<Part>& parts) const;
  void read(const Part& part, Lane& lane) const;
  void read(std::vector<Part> parts);
  void add_parts(int file, std::vector<Part>& parts) const;

  std::string folder_;
  bool takes_averages_ = false;
  Manifest manifest_;
  std::map<std::pair<std::string, std::string>, int> parameters_;  // keyed by owner and name
  std::vector<std::vector<Location>> locations_;                   // per array, ordered by elements
  std::vector<std::unique_ptr<Lane>> lanes_;                       // at least one
};

}  // namespace ostrakon::checkpoint
