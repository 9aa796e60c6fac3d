// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/checkpoint/shard_writer.hpp>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <ostrakon/base/clock.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/files.hpp>
#include <ostrakon/base/format.hpp>
#include <thread>
#include <utility>
#include <vector>

namespace ostrakon::checkpoint {
namespace {

/// Bytes of the file from one source: a block of a piece, or a part of the structure.
struct Part {
  std::int64_t offset = 0;          // in the file
  std::int64_t bytes = 0;           // at most block_bytes
  const char* structure = nullptr;  // its bytes; null for a block
  std::size_t piece = 0;            // index in the file's layout
  std::size_t entry = 0;            // index among this rank's pieces
  std::size_t block = 0;            // index in the piece
};

/// Limits the average write rate of a rank.
class Pace {
 public:
  explicit Pace(const WriteOptions& options)
      : bytes_per_second_(options.bytes_per_second), urgent_(options.urgent) {}

  /// Waits until `bytes` more bytes are within the limit, or the save is urgent.
  void wait(std::int64_t bytes) {
    if (bytes_per_second_ <= 0.0) return;
    bytes_ += static_cast<double>(bytes);
    const double due = bytes_ / bytes_per_second_;
    constexpr double nap = 0.05;
    for (double now = clock_.seconds(); now < due && !urgent(); now = clock_.seconds())
      std::this_thread::sleep_for(std::chrono::duration<double>(std::min(due - now, nap)));
  }

 private:
  bool urgent() const { return urgent_ != nullptr && *urgent_; }

  double bytes_per_second_;
  const std::atomic<bool>* urgent_;
  double bytes_ = 0.0;
  Stopwatch clock_;
};

/// Collects bytes that are mostly contiguous into aligned chunks, which are written by direct I/O.
class Chunks {
 public:
  Chunks(PlainFile& file, const WriteOptions& options)
      : file_(file), pace_(options), buffer_(block_bytes) {}

  void add(std::int64_t offset, const char* bytes, std::int64_t count) {
    if (offset != end_) {
      flush();
      begin_ = end_ = offset;
    }
    while (count > 0) {
      const std::int64_t base = DirectIoBuffer::round_down(begin_);
      const std::int64_t some = std::min(count, base + buffer_.bytes() - end_);
      std::memcpy(buffer_.data() + (end_ - base), bytes, static_cast<std::size_t>(some));
      end_ += some;
      bytes += some;
      count -= some;
      if (end_ == base + buffer_.bytes()) flush();
    }
  }

  void flush() {
    if (begin_ == end_) return;
    // Unaligned ends of a large chunk are written separately, so that the rest can be direct.
    constexpr std::int64_t worth = std::int64_t{64} << 10;
    const std::int64_t first = DirectIoBuffer::round_up(begin_);
    const std::int64_t last = DirectIoBuffer::round_down(end_);
    if (last - first >= worth) {
      write(begin_, first);
      write(first, last);
      write(last, end_);
    } else {
      write(begin_, end_);
    }
    file_.begin_sync(begin_, end_ - begin_);
    pace_.wait(end_ - begin_);
    begin_ = end_;
  }

 private:
  /// Writes bytes [begin, end) of the file, which are in the buffer.
  void write(std::int64_t begin, std::int64_t end) {
    const std::int64_t base = DirectIoBuffer::round_down(begin_);
    if (begin < end) file_.write(begin, end - begin, buffer_.data() + (begin - base));
  }

  PlainFile& file_;
  Pace pace_;
  DirectIoBuffer buffer_;  // begins at the aligned offset at or before begin_
  std::int64_t begin_ = 0, end_ = 0;
};

class Shard {
 public:
  Shard(const std::string& folder, const FileLayout& layout, int rank, const Values& values)
      : layout_(layout),
        makes_file_(rank == layout.writer),
        values_(values),
        file_(folder + "/" + layout.name, PlainFile::Mode::write) {
    entry_.name = layout.name;
    entry_.bytes = layout.bytes;
    if (makes_file_) {
      entry_.structure = layout.structure_checksum();
      add_structure();
    }
    add_pieces(rank);
    std::sort(parts_.begin(), parts_.end(),
              [](const Part& a, const Part& b) { return a.offset < b.offset; });
  }

  void write(const WriteOptions& options);
  /// Reads back the written bytes, from the disk if the system drops its page cache.
  void verify();
  void close() { file_.close(); }
  FileEntry take_entry() { return std::move(entry_); }

 private:
  void add_structure();
  void add_pieces(int rank);
  const char* bytes_of(const Part& part);

  const FileLayout& layout_;
  bool makes_file_;
  const Values& values_;
  PlainFile file_;
  FileEntry entry_;
  std::vector<Part> parts_;  // by offset in the file
};

void Shard::add_structure() {
  for (const hdf5::FileTemplate::Extent& extent : layout_.file_template.structure) {
    const auto size = static_cast<std::int64_t>(extent.bytes.size());
    for (std::int64_t first = 0; first < size; first += block_bytes) {
      Part part;
      part.offset = extent.offset + first;
      part.bytes = std::min(block_bytes, size - first);
      part.structure = extent.bytes.data() + first;
      parts_.push_back(part);
    }
  }
}

void Shard::add_pieces(int rank) {
  for (std::size_t i = 0; i < layout_.pieces.size(); ++i) {
    const Piece& piece = layout_.pieces[i];
    if (piece.rank != rank) continue;
    PieceEntry entry;
    entry.slice = piece.slice;
    entry.rank = rank;
    entry.offset = piece.offset;
    for (std::int64_t first = 0; first < piece.bytes; first += block_bytes) {
      Part part;
      part.offset = piece.offset + first;
      part.bytes = std::min(block_bytes, piece.bytes - first);
      part.piece = i;
      part.entry = entry_.pieces.size();
      part.block = entry.checksums.size();
      parts_.push_back(part);
      entry.checksums.push_back(0);
    }
    entry_.pieces.push_back(std::move(entry));
  }
}

/// Returns the bytes of a part; for a block it also records the checksum.
const char* Shard::bytes_of(const Part& part) {
  if (part.structure != nullptr) return part.structure;
  const auto first = static_cast<std::int64_t>(part.block) * block_bytes;
  const auto* bytes = static_cast<const char*>(values_(part.piece, first, part.bytes));
  hdf5::Checksum sum;
  sum.add(bytes, part.bytes);
  entry_.pieces[part.entry].checksums[part.block] = sum.value();
  return bytes;
}

void Shard::write(const WriteOptions& options) {
  if (makes_file_) file_.resize(layout_.bytes);
  file_.prefer_direct();
  Chunks chunks(file_, options);
  for (const Part& part : parts_) chunks.add(part.offset, bytes_of(part), part.bytes);
  chunks.flush();
  file_.sync();
}

void Shard::verify() {
  file_.drop_cache(0, layout_.bytes);
  const DirectIoBuffer buffer(block_bytes + 2 * DirectIoBuffer::alignment);
  for (const Part& part : parts_) {
    const char* const found = file_.read_aligned(part.offset, part.bytes, buffer);
    bool same = false;
    if (part.structure != nullptr) {
      same = std::memcmp(found, part.structure, static_cast<std::size_t>(part.bytes)) == 0;
    } else {
      hdf5::Checksum sum;
      sum.add(found, part.bytes);
      same = sum.value() == entry_.pieces[part.entry].checksums[part.block];
    }
    require(same, "'", file_.path(), "': its bytes ", part.offset, " to ", part.offset + part.bytes,
            " were read back, and are not those that were written");
  }
}

}  // namespace

FileEntry write_shard(const std::string& folder, const FileLayout& file, int rank,
                      const Values& values, const WriteOptions& options) {
  Shard shard(folder, file, rank, values);
  shard.write(options);
  if (options.verify) shard.verify();
  shard.close();
  return shard.take_entry();
}

}  // namespace ostrakon::checkpoint
