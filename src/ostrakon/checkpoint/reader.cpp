// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/checkpoint/reader.hpp>

#include <algorithm>
#include <cstring>
#include <deque>
#include <filesystem>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/file_type.hpp>
#include <ostrakon/base/files/files.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/hdf5/hdf5.hpp>
#include <ostrakon/base/threads.hpp>
#include <ostrakon/checkpoint/input_file.hpp>
#include <ostrakon/math/half.hpp>
#include <tuple>
#include <utility>

namespace ostrakon::checkpoint {
namespace {

/// Limit of open files per thread, as a checkpoint of many ranks has more files than a process may
/// open.
constexpr std::size_t most_open_files = 16;
/// Number of threads; more do not read faster.
constexpr std::size_t most_lanes = 4;
/// Smaller blocks are not read by direct I/O, as the page cache reads their neighbours along.
constexpr std::int64_t worth_going_direct = std::int64_t{64} << 10;

std::size_t index(std::int64_t number) { return static_cast<std::size_t>(number); }

std::uint64_t checksum_of(const void* bytes, std::int64_t count) {
  hdf5::Checksum sum;
  sum.add(bytes, count);
  return sum.value();
}

/// Widens bf16 to fp32 in place: `values` holds `count` bf16 in the second half of its memory.
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

class CheckpointReader::Lane {
 public:
  explicit Lane(const CheckpointReader& reader) : reader_(reader) {}

  /// Opens a file of the manifest, and checks its size.
  const PlainFile& open(int file);
  /// Returns the bytes of a block, after checking its checksum; valid until the next call.
  const char* read(const Block& block);
  /// Returns memory for a block's bytes, which is free until the next call.
  char* buffer() {
    in_buffer_ = {};
    return buffer_.data();
  }

 private:
  const CheckpointReader& reader_;
  std::map<int, PlainFile> files_;
  std::deque<int> order_;  // open files, the longest open first
  DirectIoBuffer buffer_{block_bytes + 2 * DirectIoBuffer::alignment};
  Block in_buffer_;
  const char* found_ = nullptr;  // the block in buffer_
};

const PlainFile& CheckpointReader::Lane::open(int file) {
  const auto known = files_.find(file);
  if (known != files_.end()) return known->second;
  if (order_.size() == most_open_files) {
    files_.erase(order_.front());
    order_.pop_front();
  }
  const FileEntry& entry = reader_.entry(file);
  const std::string path = reader_.folder_ + "/" + entry.name;
  require(type_of(path) != std::filesystem::file_type::not_found, "'", path,
          "' is missing, or this host does not see it (yet); its checkpoint's manifest names it");
  PlainFile opened(path, PlainFile::Mode::read);
  const std::int64_t found = opened.size();
  require_length(opened, found);
  require_undamaged(found == entry.bytes, "'", opened.path(), "' is ",
                    found < entry.bytes ? "truncated" : "too long", ": it has ",
                    format_count(found), " bytes, expected ", format_count(entry.bytes));
  opened.prefer_direct();
  order_.push_back(file);
  return files_.emplace(file, std::move(opened)).first->second;
}

const char* CheckpointReader::Lane::read(const Block& block) {
  if (block == in_buffer_) return found_;
  const PieceEntry& piece = reader_.entry(block);
  const std::int64_t bytes = reader_.block_size(block);
  const std::int64_t offset = piece.offset + block.block * block_bytes;
  const PlainFile& file = open(block.file);
  in_buffer_ = {};  // in case reading fails
  if (bytes < worth_going_direct) {
    file.read(offset, bytes, buffer_.data());
    found_ = buffer_.data();
  } else {
    found_ = file.read_aligned(offset, bytes, buffer_);
  }
  const std::uint64_t found = checksum_of(found_, bytes);
  const std::uint64_t expected = piece.checksums[index(block.block)];
  require_undamaged(found == expected, "'", file.path(), "' is damaged: its bytes ", offset, " to ",
                    offset + bytes, ", of ", name(piece.slice.state), " of ",
                    reader_.manifest_.parameters[index(piece.slice.parameter)].path(),
                    ", have the checksum ", format_hex(found), ", expected ", format_hex(expected));
  in_buffer_ = block;
  return found_;
}

CheckpointReader::CheckpointReader(const std::string& folder)
    : CheckpointReader(folder, load_manifest(folder)) {}

CheckpointReader::CheckpointReader(const std::string& folder, const std::string& manifest)
    : folder_(folder), manifest_(read_manifest(manifest, manifest_path(folder))) {
  for (std::size_t i = 0; i < manifest_.parameters.size(); ++i) {
    const ParameterEntry& parameter = manifest_.parameters[i];
    parameters_[{parameter.owner, parameter.name}] = static_cast<int>(i);
  }
  lanes_.push_back(std::make_unique<Lane>(*this));
  add_locations();
}

CheckpointReader::~CheckpointReader() = default;

void CheckpointReader::add_locations() {
  locations_.resize(states * manifest_.parameters.size());
  for (std::size_t file = 0; file < manifest_.files.size(); ++file) {
    const std::vector<PieceEntry>& pieces = manifest_.files[file].pieces;
    for (std::size_t piece = 0; piece < pieces.size(); ++piece) {
      const Slice& slice = pieces[piece].slice;
      if (slice.count == 0) continue;
      locations(slice.state, slice.parameter)
          .push_back({slice.first, static_cast<int>(file), static_cast<int>(piece)});
    }
  }
  for (std::vector<Location>& list : locations_) {
    std::sort(list.begin(), list.end(),
              [](const Location& a, const Location& b) { return a.first < b.first; });
  }
}

std::vector<CheckpointReader::Location>& CheckpointReader::locations(State state, int parameter) {
  return locations_[index(states * std::int64_t{parameter} + static_cast<int>(state))];
}

const std::vector<CheckpointReader::Location>& CheckpointReader::locations(State state,
                                                                           int parameter) const {
  return locations_[index(states * std::int64_t{parameter} + static_cast<int>(state))];
}

const FileEntry& CheckpointReader::entry(int file) const { return manifest_.files.at(index(file)); }

const PieceEntry& CheckpointReader::entry(const Block& block) const {
  return entry(block.file).pieces[index(block.piece)];
}

std::int64_t CheckpointReader::width(State state) const {
  return bytes_of(manifest_.dtypes[index(static_cast<int>(state))]);
}

std::int64_t CheckpointReader::piece_bytes(const PieceEntry& piece) const {
  return piece.slice.count * width(piece.slice.state);
}

std::int64_t CheckpointReader::block_size(const Block& block) const {
  return std::min(block_bytes, piece_bytes(entry(block)) - block.block * block_bytes);
}

int CheckpointReader::find(const std::string& owner, const std::string& parameter) const {
  const auto found = parameters_.find({owner, parameter});
  return found == parameters_.end() ? -1 : found->second;
}

bool CheckpointReader::has(State state, int parameter) const {
  return parameter >= 0 && index(parameter) < manifest_.parameters.size() &&
         !locations(state, parameter).empty();
}

namespace {

/// Visits elements [first, first + count) of a matrix in the order of `wanted` column pieces, where
/// they are saved in the order of `saved` column pieces: calls body(first, count) for each run that
/// is contiguous as saved.
template <class Body>
void for_each_saved_run(std::int64_t rows, std::int64_t columns, std::int64_t wanted,
                        std::int64_t saved, std::int64_t first, std::int64_t count,
                        const Body& body) {
  const std::int64_t wanted_width = columns / wanted, saved_width = columns / saved;
  for (std::int64_t at = first; at < first + count;) {
    const std::int64_t in_piece = at % (rows * wanted_width), row = in_piece / wanted_width;
    const std::int64_t column = at / (rows * wanted_width) * wanted_width + at % wanted_width;
    const std::int64_t run = std::min(
        {first + count - at, wanted_width - at % wanted_width, saved_width - column % saved_width});
    body((column / saved_width * rows + row) * saved_width + column % saved_width, run);
    at += run;
  }
}

}  // namespace

/// Adds the parts that a slice consists of.
void CheckpointReader::add_parts(const Wanted& wanted, std::vector<Part>& parts) const {
  const auto [state, parameter, wanted_first, wanted_count] = wanted.slice;
  require(parameter >= 0 && index(parameter) < manifest_.parameters.size(), "parameter ", parameter,
          " of checkpoint '", folder_, "' asked for; it has ", manifest_.parameters.size());
  const ParameterEntry& entry_of = manifest_.parameters[index(parameter)];
  const std::int64_t elements = entry_of.elements();
  require(wanted_first >= 0 && wanted_count >= 0 && wanted_first <= elements &&
              wanted_count <= elements - wanted_first,
          "elements ", wanted_first, " to ", wanted_first, " + ", wanted_count, " of ",
          entry_of.path(), " asked for from checkpoint '", folder_, "'; it has ", elements);
  auto* out = static_cast<char*>(wanted.values);
  if (wanted.column_pieces == entry_of.column_pieces) {
    add_saved_parts(wanted.slice, out, parts);
    return;
  }
  const std::int64_t rows = entry_of.shape.front(), columns = elements / rows;
  for_each_saved_run(
      rows, columns, wanted.column_pieces, entry_of.column_pieces, wanted_first, wanted_count,
      [&](std::int64_t first, std::int64_t count) {
        add_saved_parts({wanted.slice.state, wanted.slice.parameter, first, count}, out, parts);
        out += count * width(wanted.slice.state);
      });
}

/// Adds the parts of elements that are contiguous as saved.
void CheckpointReader::add_saved_parts(const Slice& slice, char* out,
                                       std::vector<Part>& parts) const {
  const auto [state, parameter, wanted_first, wanted_count] = slice;
  if (wanted_count == 0) return;
  const std::vector<Location>& all = locations(state, parameter);
  require(!all.empty(), "checkpoint '", folder_, "' has no ", name(state), " of ",
          manifest_.parameters[index(parameter)].path());
  std::int64_t first = wanted_first, count = wanted_count;
  auto location =
      std::upper_bound(all.begin(), all.end(), first,
                       [](std::int64_t value, const Location& p) { return value < p.first; });
  for (--location; count > 0; ++location) {  // pieces are adjacent, and the first begins at 0
    const Slice& saved = entry(location->file).pieces[index(location->piece)].slice;
    const std::int64_t from_piece = std::min(count, saved.first + saved.count - first);
    std::int64_t at = (first - saved.first) * width(state);
    const std::int64_t end = at + from_piece * width(state);
    while (at < end) {
      const Block block{location->file, location->piece, at / block_bytes};
      const std::int64_t skipped = at % block_bytes;
      const std::int64_t taken = std::min(end - at, block_size(block) - skipped);
      parts.push_back({block, skipped, taken, out});
      out += taken;
      at += taken;
    }
    first += from_piece;
    count -= from_piece;
  }
}

void CheckpointReader::read(const Part& part, Lane& lane) const {
  const char* const bytes = lane.read(part.block);
  if (part.values != nullptr) std::memcpy(part.values, bytes + part.skipped, index(part.taken));
}

/// Sorts parts by file and offset, so that each block is read once.
void CheckpointReader::sort(std::vector<Part>& parts) const {
  const auto location = [&](const Part& part) {
    return std::make_tuple(part.block.file, entry(part.block).offset, part.block.block);
  };
  std::sort(parts.begin(), parts.end(),
            [&](const Part& a, const Part& b) { return location(a) < location(b); });
}

void CheckpointReader::read(std::vector<Part> parts) {
  sort(parts);
  while (lanes_.size() < most_lanes) lanes_.push_back(std::make_unique<Lane>(*this));
  in_threads(static_cast<int>(lanes_.size()), static_cast<std::int64_t>(parts.size()),
             [&](int thread, std::int64_t i) { read(parts[index(i)], *lanes_[index(thread)]); });
}

void CheckpointReader::read(const std::vector<Wanted>& wanted) {
  std::vector<Part> parts;
  for (const Wanted& one : wanted) add_parts(one, parts);
  read(std::move(parts));
}

void CheckpointReader::read(State state, int parameter, std::int64_t first, std::int64_t count,
                            void* values) {
  std::vector<Part> parts;
  add_parts({{state, parameter, first, count}, values}, parts);
  sort(parts);
  for (const Part& part : parts) read(part, *lanes_.front());
}

void CheckpointReader::read_as_saved(const Slice& slice, void* values) {
  std::vector<Part> parts;
  add_saved_parts(slice, static_cast<char*>(values), parts);
  for (const Part& part : parts) read(part, *lanes_.front());
}

void CheckpointReader::take_averages() {
  bool any = false;
  for (int i = 0; i < static_cast<int>(manifest_.parameters.size()); ++i)
    any = any || has(State::average, i);
  require(any, "checkpoint '", folder_,
          "' has no averages; expected one of a run with training.ema above 0");
  takes_averages_ = true;
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
  const State state =
      takes_averages_ && has(State::average, number) ? State::average : State::parameters;
  const DType kept = manifest_.dtypes[static_cast<int>(state)];
  if (kept == DType::fp32) {
    read(state, number, first, count, values);
    return;
  }
  require(kept == DType::bf16, "checkpoint '", folder_, "' keeps parameters in ",
          ostrakon::name(kept), "; expected fp32 or bf16");
  read(state, number, first, count,
       reinterpret_cast<char*>(values) + count * bytes_of(DType::bf16));
  widen(count, values);
}

void CheckpointReader::verify_structure(int file) {
  const FileEntry& expected = entry(file);
  Lane& lane = *lanes_.front();
  const PlainFile& source = lane.open(file);
  std::vector<std::pair<std::int64_t, std::int64_t>> pieces;  // begin, end
  for (const PieceEntry& piece : expected.pieces) {
    pieces.emplace_back(piece.offset, piece.offset + piece_bytes(piece));
  }
  pieces.emplace_back(expected.bytes, expected.bytes);
  std::sort(pieces.begin(), pieces.end());

  char* const buffer = lane.buffer();
  hdf5::Checksum sum;
  std::int64_t at = 0;
  for (const auto& [offset, end] : pieces) {
    while (at < offset) {
      const std::int64_t bytes = std::min(block_bytes, offset - at);
      source.read(at, bytes, buffer);
      sum.add(buffer, bytes);
      at += bytes;
    }
    at = end;
  }
  require_undamaged(sum.value() == expected.structure, "'", source.path(),
                    "' is damaged: its bytes outside the data have the checksum ", sum.hex(),
                    ", expected ", format_hex(expected.structure));
}

/// Adds all blocks of a file as parts that are only checked.
void CheckpointReader::add_parts(int file, std::vector<Part>& parts) const {
  const std::vector<PieceEntry>& pieces = entry(file).pieces;
  for (std::size_t piece = 0; piece < pieces.size(); ++piece)
    for (std::size_t block = 0; block < pieces[piece].checksums.size(); ++block)
      parts.push_back(
          {{file, static_cast<int>(piece), static_cast<std::int64_t>(block)}, 0, 0, nullptr});
}

void CheckpointReader::verify_numbers(int file) {
  lanes_.front()->open(file);  // also checks a file without pieces
  std::vector<Part> parts;
  add_parts(file, parts);
  read(std::move(parts));
}

void CheckpointReader::verify() {
  for (int file = 0; file < static_cast<int>(manifest_.files.size()); ++file) {
    verify_structure(file);
    verify_numbers(file);
  }
}

}  // namespace ostrakon::checkpoint
