// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <ostrakon/base/files.hpp>
#include <ostrakon/checkpoint/manifest.hpp>
#include <ostrakon/checkpoint/parameter_source.hpp>
#include <string>
#include <utility>
#include <vector>

namespace ostrakon::checkpoint {

/// Reads a checkpoint, whatever ranks wrote it: any slice of any array, by one process. Every byte
/// that it hands out has passed its checksum. Does not use HDF5: where numbers are stands in the
/// manifest. Throws Error, naming the file, for whatever is missing, truncated or damaged.
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

  /// numbers (host memory) = elements [first, first + count) of an array, in the numbers that it is
  /// kept in: manifest().numbers.
  void read(State state, int parameter, std::int64_t first, std::int64_t count, void* numbers);

  /// As ParameterSource: of State::parameters.
  void read(const std::string& owner, const std::string& parameter,
            const std::vector<std::int64_t>& shape, std::int64_t first, std::int64_t count,
            float* values) override;

  /// Whether file `file` of the manifest is there and as long as it should be, and all of it that
  /// is no number is as it was written. Cheap.
  void verify_structure(int file);
  /// Reads all numbers of file `file`.
  void verify_numbers(int file);
  /// Both, of all files.
  void verify() override;

 private:
  struct Source;
  /// Where elements from `first` on of an array are.
  struct Place {
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

  void add_places();
  std::vector<Place>& places(State state, int parameter);
  const std::vector<Place>& places(State state, int parameter) const;
  const FileEntry& entry(int file) const;
  const PieceEntry& entry(const Block& block) const;
  std::int64_t width(State state) const;
  std::int64_t piece_bytes(const PieceEntry& piece) const;
  std::int64_t block_size(const Block& block) const;
  Source& open(int file);
  void read_piece(const Place& place, std::int64_t first, std::int64_t bytes, char* numbers);
  void read_block(const Block& block, char* numbers);
  const char* buffered(const Block& block);

  std::string folder_;
  Manifest manifest_;
  std::map<std::pair<std::string, std::string>, int> parameters_;  // by owner and name
  std::vector<std::vector<Place>> places_;        // of each array, in the order of its elements
  std::vector<std::unique_ptr<Source>> sources_;  // of each file; null where it is not open
  std::deque<int> open_;                          // files, the longest open first
  std::vector<char> buffer_;                      // one block
  TransferBuffer transfer_{block_bytes + 2 * TransferBuffer::alignment};  // as it is read
  Block in_buffer_;
};

}  // namespace ostrakon::checkpoint
