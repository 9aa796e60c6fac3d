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

/// A slice to be read, and where its values go (host memory).
struct Wanted {
  Slice slice;  ///< in the order of elements that follows
  void* values = nullptr;
  std::int64_t column_pieces = 1;  ///< as those of ParameterEntry, which need not be so many
};

/// Reads a checkpoint, whatever ranks wrote it: any slice of any array, by one process. Every byte
/// that it hands out has passed its checksum. Does not use HDF5: the manifest says where values
/// are. Throws DamagedError, naming the file, for whatever is of another length or damaged, and
/// Error for what is missing or can't be read.
class CheckpointReader : public ParameterSource {
 public:
  /// `folder`: of the manifest.
  explicit CheckpointReader(const std::string& folder);
  /// The same, with the manifest's text as another rank has loaded it.
  CheckpointReader(const std::string& folder, const std::string& manifest);
  ~CheckpointReader() override;

  const std::string& folder() const { return folder_; }
  const Manifest& manifest() const { return manifest_; }

  /// Index into the table of parameters; -1 where it has none such.
  int find(const std::string& owner, const std::string& parameter) const;
  bool has(State state, int parameter) const;

  /// values (host memory) = elements [first, first + count) of an array, row by row, in the dtype
  /// that it is kept in: manifest().dtypes.
  void read(State state, int parameter, std::int64_t first, std::int64_t count, void* values);
  /// Reads them in the order in which they are saved.
  void read_as_saved(const Slice& slice, void* values);

  /// Reads all of them by several threads at once, which is faster: one thread alone would not read
  /// the next while it checks the last.
  void read(const std::vector<Wanted>& wanted);

  /// See ParameterSource: reads of State::parameters.
  void read(const std::string& owner, const std::string& parameter,
            const std::vector<std::int64_t>& shape, std::int64_t first, std::int64_t count,
            float* values) override;

  /// Whether file `file` of the manifest is there and as long as it should be, and all of it that
  /// is no number is as it was written. Cheap.
  void verify_structure(int file);
  /// Reads all values of file `file`.
  void verify_numbers(int file);
  /// Both, of all files.
  void verify() override;
  bool checks_what_it_reads() const override { return true; }

 private:
  /// Where elements from `first` on of an array are.
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
    std::int64_t skipped = 0, taken = 0;  ///< bytes of it
    char* values = nullptr;               ///< where they go; null: the block is only checked
  };
  /// What a thread reads with: files, and memory for one block.
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
  Manifest manifest_;
  std::map<std::pair<std::string, std::string>, int> parameters_;  // by owner and name
  std::vector<std::vector<Location>> locations_;  // of each array, in the order of its elements
  std::vector<std::unique_ptr<Lane>> lanes_;      // at least one
};

}  // namespace ostrakon::checkpoint
