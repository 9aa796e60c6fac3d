// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/hdf5.hpp>
#include <ostrakon/checkpoint/reader.hpp>
#include <ostrakon/math/half.hpp>

namespace ostrakon::checkpoint {
namespace {

/// A checkpoint of many ranks has more files than a process may have open.
constexpr std::size_t most_open_files = 64;

std::size_t index(std::int64_t number) { return static_cast<std::size_t>(number); }

std::uint64_t checksum_of(const void* bytes, std::int64_t count) {
  hdf5::Checksum sum;
  sum.add(bytes, count);
  return sum.value();
}

/// `values` holds `count` bf16 in the second half of its memory and then, in place, their values.
void widen(std::int64_t count, float* values) {
  auto* const bytes = reinterpret_cast<char*>(values);
  const char* const halves = bytes + count * static_cast<std::int64_t>(sizeof(bf16));
  for (std::int64_t i = 0; i < count; ++i) {
    bf16 half;
    std::memcpy(&half, halves + i * static_cast<std::int64_t>(sizeof half), sizeof half);
    const float value = half;
    std::memcpy(bytes + i * static_cast<std::int64_t>(sizeof value), &value, sizeof value);
  }
}

}  // namespace

/// An open file, of the length that it should have.
struct CheckpointReader::Source {
  Source(const std::string& path, std::int64_t bytes) : file(path, PlainFile::Mode::read) {
    const std::int64_t found = file.size();
    require(found == bytes, "'", path, "' is ", found < bytes ? "truncated" : "too long",
            ": it has ", format_count(found), " bytes, expected ", format_count(bytes));
    file.prefer_direct();
  }

  PlainFile file;
};

CheckpointReader::CheckpointReader(const std::string& folder)
    : CheckpointReader(folder, load_manifest(folder)) {}

CheckpointReader::CheckpointReader(const std::string& folder, const std::string& manifest)
    : folder_(folder), manifest_(read_manifest(manifest, manifest_path(folder))) {
  for (std::size_t i = 0; i < manifest_.parameters.size(); ++i) {
    const ParameterEntry& parameter = manifest_.parameters[i];
    parameters_[{parameter.owner, parameter.name}] = static_cast<int>(i);
  }
  sources_.resize(manifest_.files.size());
  add_places();
}

CheckpointReader::~CheckpointReader() = default;

void CheckpointReader::add_places() {
  places_.resize(states * manifest_.parameters.size());
  for (std::size_t file = 0; file < manifest_.files.size(); ++file) {
    const std::vector<PieceEntry>& pieces = manifest_.files[file].pieces;
    for (std::size_t piece = 0; piece < pieces.size(); ++piece) {
      const Slice& slice = pieces[piece].slice;
      if (slice.count == 0) continue;
      places(slice.state, slice.parameter)
          .push_back({slice.first, static_cast<int>(file), static_cast<int>(piece)});
    }
  }
  for (std::vector<Place>& list : places_) {
    std::sort(list.begin(), list.end(),
              [](const Place& a, const Place& b) { return a.first < b.first; });
  }
}

std::vector<CheckpointReader::Place>& CheckpointReader::places(State state, int parameter) {
  return places_[index(states * std::int64_t{parameter} + static_cast<int>(state))];
}

const std::vector<CheckpointReader::Place>& CheckpointReader::places(State state,
                                                                     int parameter) const {
  return places_[index(states * std::int64_t{parameter} + static_cast<int>(state))];
}

const FileEntry& CheckpointReader::entry(int file) const { return manifest_.files.at(index(file)); }

const PieceEntry& CheckpointReader::entry(const Block& block) const {
  return entry(block.file).pieces[index(block.piece)];
}

std::int64_t CheckpointReader::width(State state) const {
  return bytes_of(manifest_.numbers[index(static_cast<int>(state))]);
}

std::int64_t CheckpointReader::piece_bytes(const PieceEntry& piece) const {
  return piece.slice.count * width(piece.slice.state);
}

std::int64_t CheckpointReader::block_size(const Block& block) const {
  return std::min(block_bytes, piece_bytes(entry(block)) - block.block * block_bytes);
}

CheckpointReader::Source& CheckpointReader::open(int file) {
  std::unique_ptr<Source>& source = sources_.at(index(file));
  if (source == nullptr) {
    if (open_.size() == most_open_files) {
      sources_[index(open_.front())].reset();
      open_.pop_front();
    }
    source = std::make_unique<Source>(folder_ + "/" + entry(file).name, entry(file).bytes);
    open_.push_back(file);
  }
  return *source;
}

int CheckpointReader::find(const std::string& owner, const std::string& parameter) const {
  const auto found = parameters_.find({owner, parameter});
  return found == parameters_.end() ? -1 : found->second;
}

bool CheckpointReader::has(State state, int parameter) const {
  return parameter >= 0 && index(parameter) < manifest_.parameters.size() &&
         !places(state, parameter).empty();
}

/// numbers, unless null, = a block that has passed its checksum.
void CheckpointReader::read_block(const Block& block, char* numbers) {
  const PieceEntry& piece = entry(block);
  const std::int64_t bytes = block_size(block);
  const std::int64_t offset = piece.offset + block.block * block_bytes;
  const PlainFile& file = open(block.file).file;
  const char* const read = file.read_aligned(offset, bytes, transfer_);
  const std::uint64_t found = checksum_of(read, bytes);
  const std::uint64_t expected = piece.checksums[index(block.block)];
  require(found == expected, "'", file.path(), "' is damaged: its bytes ", offset, " to ",
          offset + bytes, ", of ", name(piece.slice.state), " of ",
          manifest_.parameters[index(piece.slice.parameter)].path(), ", have the checksum ",
          format_hex(found), ", expected ", format_hex(expected));
  if (numbers != nullptr) std::memcpy(numbers, read, index(bytes));
}

/// The same in memory of the reader, until the next call.
const char* CheckpointReader::buffered(const Block& block) {
  if (!(block == in_buffer_)) {
    buffer_.resize(index(block_bytes));
    in_buffer_ = {};  // should reading fail
    read_block(block, buffer_.data());
    in_buffer_ = block;
  }
  return buffer_.data();
}

/// numbers = bytes [first, first + bytes) of a piece.
void CheckpointReader::read_piece(const Place& place, std::int64_t first, std::int64_t bytes,
                                  char* numbers) {
  while (bytes > 0) {
    const Block block{place.file, place.piece, first / block_bytes};
    const std::int64_t size = block_size(block), skipped = first % block_bytes;
    const std::int64_t taken = std::min(bytes, size - skipped);
    if (taken == size) {
      read_block(block, numbers);
    } else {
      std::memcpy(numbers, buffered(block) + skipped, index(taken));
    }
    numbers += taken;
    first += taken;
    bytes -= taken;
  }
}

void CheckpointReader::read(State state, int parameter, std::int64_t first, std::int64_t count,
                            void* numbers) {
  require(parameter >= 0 && index(parameter) < manifest_.parameters.size(), "parameter ", parameter,
          " of checkpoint '", folder_, "' asked for; it has ", manifest_.parameters.size());
  const ParameterEntry& wanted = manifest_.parameters[index(parameter)];
  const std::int64_t elements = wanted.elements();
  require(first >= 0 && count >= 0 && first <= elements && count <= elements - first, "elements ",
          first, " to ", first, " + ", count, " of ", wanted.path(), " asked for from checkpoint '",
          folder_, "'; it has ", elements);
  if (count == 0) return;
  const std::vector<Place>& all = places(state, parameter);
  require(!all.empty(), "checkpoint '", folder_, "' has no ", name(state), " of ", wanted.path());

  auto* out = static_cast<char*>(numbers);
  auto place = std::upper_bound(all.begin(), all.end(), first,
                                [](std::int64_t value, const Place& p) { return value < p.first; });
  for (--place; count > 0; ++place) {  // pieces join, and the first begins at 0
    const Slice& slice = entry(place->file).pieces[index(place->piece)].slice;
    const std::int64_t skipped = first - slice.first;
    const std::int64_t taken = std::min(count, slice.count - skipped);
    read_piece(*place, skipped * width(state), taken * width(state), out);
    out += taken * width(state);
    first += taken;
    count -= taken;
  }
}

void CheckpointReader::read(const std::string& owner, const std::string& parameter,
                            const std::vector<std::int64_t>& shape, std::int64_t first,
                            std::int64_t count, float* values) {
  const int number = find(owner, parameter);
  require(number >= 0, "checkpoint '", folder_, "' has no parameter '", parameter, "' of '", owner,
          "'");
  const std::vector<std::int64_t>& found = manifest_.parameters[index(number)].shape;
  require(found == shape, "parameter '", parameter, "' of '", owner, "' has the shape ",
          hdf5::shape_text(found), " in checkpoint '", folder_, "', expected ",
          hdf5::shape_text(shape));
  const Number kept = manifest_.numbers[static_cast<int>(State::parameters)];
  if (kept == Number::fp32) {
    read(State::parameters, number, first, count, values);
    return;
  }
  require(kept == Number::bf16, "checkpoint '", folder_, "' keeps parameters in ",
          ostrakon::name(kept), "; expected fp32 or bf16");
  read(State::parameters, number, first, count,
       reinterpret_cast<char*>(values) + count * bytes_of(Number::bf16));
  widen(count, values);
}

void CheckpointReader::verify_structure(int file) {
  const FileEntry& expected = entry(file);
  const PlainFile& source = open(file).file;
  std::vector<std::pair<std::int64_t, std::int64_t>> pieces;  // offset, end
  for (const PieceEntry& piece : expected.pieces) {
    pieces.emplace_back(piece.offset, piece.offset + piece_bytes(piece));
  }
  pieces.emplace_back(expected.bytes, expected.bytes);
  std::sort(pieces.begin(), pieces.end());

  buffer_.resize(index(block_bytes));
  in_buffer_ = {};
  hdf5::Checksum sum;
  std::int64_t at = 0;
  for (const auto& [offset, end] : pieces) {
    while (at < offset) {
      const std::int64_t bytes = std::min(block_bytes, offset - at);
      source.read(at, bytes, buffer_.data());
      sum.add(buffer_.data(), bytes);
      at += bytes;
    }
    at = end;
  }
  require(sum.value() == expected.structure, "'", source.path(),
          "' is damaged: what is in it beside numbers has the checksum ", sum.hex(), ", expected ",
          format_hex(expected.structure));
}

void CheckpointReader::verify_numbers(int file) {
  const std::vector<PieceEntry>& pieces = entry(file).pieces;
  open(file);
  for (std::size_t piece = 0; piece < pieces.size(); ++piece)
    for (std::size_t block = 0; block < pieces[piece].checksums.size(); ++block)
      read_block({file, static_cast<int>(piece), static_cast<std::int64_t>(block)}, nullptr);
}

void CheckpointReader::verify() {
  for (int file = 0; file < static_cast<int>(manifest_.files.size()); ++file) {
    verify_structure(file);
    verify_numbers(file);
  }
}

}  // namespace ostrakon::checkpoint
