// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/text/sources/source_stream.hpp>

#include <poll.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <limits>
#include <new>
#include <ostrakon/base/error.hpp>
#include <ostrakon/data/known_format.hpp>
#include <string_view>
#include <utility>

namespace ostrakon::texts {
namespace {

using namespace std::string_view_literals;

constexpr std::size_t raw_block_bytes = 1 << 18;
constexpr std::string_view gzip_mark = "\x1f\x8b\x08"sv, zstd_mark = "\x28\xb5\x2f\xfd"sv;

}  // namespace

Compression compression_of(const std::string& head) {
  if (head.compare(0, gzip_mark.size(), gzip_mark) == 0) return Compression::gzip;
  if (head.compare(0, zstd_mark.size(), zstd_mark) == 0) return Compression::zstd;
  return Compression::none;
}

// --- bytes as they are ---------------------------------------------------------------------------

/// Bytes as a file has them, of which the next ones can be looked at.
class SourceStream::Raw {
 public:
  virtual ~Raw() = default;

  /// Bytes that were not taken yet, at least one unless the source is at its end.
  std::string_view next() {
    if (at_ == buffer_.size()) {
      buffer_.resize(raw_block_bytes);
      buffer_.resize(get(buffer_.data(), raw_block_bytes));
      at_ = 0;
    }
    return std::string_view(buffer_).substr(at_);
  }
  void take(std::size_t bytes) {
    at_ += bytes;
    taken_ += static_cast<std::int64_t>(bytes);
  }
  std::int64_t taken() const { return taken_; }

 private:
  /// Reads at least a byte, unless the source is at its end.
  virtual std::size_t get(char* to, std::size_t bytes) = 0;

  std::string buffer_;
  std::size_t at_ = 0;
  std::int64_t taken_ = 0;
};

class SourceStream::File : public Raw {
 public:
  explicit File(const std::string& path) : file_(path, PlainFile::Mode::read) {}

 private:
  std::size_t get(char* to, std::size_t bytes) override {
    const std::int64_t got = file_.read_up_to(at_, static_cast<std::int64_t>(bytes), to);
    at_ += got;
    return static_cast<std::size_t>(got);
  }

  PlainFile file_;
  std::int64_t at_ = 0;
};

class SourceStream::StandardInput : public Raw {
 public:
  explicit StandardInput(std::function<bool()> stops) : stops_(std::move(stops)) {}

 private:
  std::size_t get(char* to, std::size_t bytes) override {
    for (;;) {
      pollfd waited{STDIN_FILENO, POLLIN, 0};
      const int ready = ::poll(&waited, 1, 200);
      if (stops_ && stops_()) return 0;
      if (ready == 0 || (ready < 0 && errno == EINTR)) continue;
      const ssize_t got = ::read(STDIN_FILENO, to, bytes);
      if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      require(got >= 0, "can't read the standard input: ", system_error());
      return static_cast<std::size_t>(got);
    }
  }

  std::function<bool()> stops_;
};

// --- decompressed bytes --------------------------------------------------------------------------

class SourceStream::Decoder {
 public:
  virtual ~Decoder() = default;
  /// Returns 0 at the end only.
  virtual std::size_t read(Raw& raw, char* to, std::size_t bytes) = 0;
};

class SourceStream::Plain : public Decoder {
 public:
  std::size_t read(Raw& raw, char* to, std::size_t bytes) override {
    const std::string_view next = raw.next();
    const std::size_t part = std::min(bytes, next.size());
    std::copy_n(next.data(), part, to);
    raw.take(part);
    return part;
  }
};

/// Members of gzip (RFC 1952), one after the other; zeros may follow, as on tapes.
class SourceStream::Gzip : public Decoder {
 public:
  Gzip() {
    constexpr int window_of_gzip = 15 + 16;
    if (inflateInit2(&stream_, window_of_gzip) != Z_OK) throw std::bad_alloc();
  }
  ~Gzip() override { inflateEnd(&stream_); }

  std::size_t read(Raw& raw, char* to, std::size_t bytes) override {
    stream_.next_out = reinterpret_cast<Bytef*>(to);
    stream_.avail_out = static_cast<uInt>(std::min<std::size_t>(bytes, 1 << 30));
    const uInt room = stream_.avail_out;
    while (stream_.avail_out == room) {
      const std::string_view next = raw.next();
      if (is_between_ && (next.empty() || begin_member(raw, next))) {
        if (next.empty()) return 0;
        continue;
      }
      require_undamaged(!next.empty(), "its gzip data is truncated");
      // zlib does not write to its input, whose pointer is not const in older versions.
      stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(next.data()));
      stream_.avail_in = static_cast<uInt>(next.size());
      const int result = inflate(&stream_, Z_NO_FLUSH);
      if (result == Z_MEM_ERROR) throw std::bad_alloc();
      require_undamaged(
          result == Z_OK || result == Z_STREAM_END || result == Z_BUF_ERROR,
          "its gzip data is damaged: ", stream_.msg != nullptr ? stream_.msg : "no gzip data");
      raw.take(next.size() - stream_.avail_in);
      is_between_ = result == Z_STREAM_END;
    }
    return room - stream_.avail_out;
  }

 private:
  /// Prepares for the next member, or takes zeros; returns whether it took bytes.
  bool begin_member(Raw& raw, std::string_view next) {
    const std::size_t zeros = std::min(next.find_first_not_of('\0'), next.size());
    if (is_padding_ || (zeros > 0 && has_member_)) {
      require_undamaged(zeros == next.size(), "other bytes follow its gzip data");
      is_padding_ = true;
      raw.take(zeros);
      return true;
    }
    require_undamaged(next[0] == gzip_mark[0], "other bytes follow its gzip data");
    if (has_member_) inflateReset(&stream_);
    has_member_ = true;
    is_between_ = false;
    return false;
  }

  z_stream stream_{};
  bool is_between_ = true, has_member_ = false, is_padding_ = false;
};

/// Frames of zstd (RFC 8878), one after the other.
class SourceStream::Zstd : public Decoder {
 public:
  Zstd() : stream_(ZSTD_createDStream()) {
    if (stream_ == nullptr) throw std::bad_alloc();
    // Large data sets are often written with `zstd --long=31`.
    constexpr int largest_window = 31;
    ZSTD_DCtx_setParameter(stream_, ZSTD_d_windowLogMax, largest_window);
  }
  ~Zstd() override { ZSTD_freeDStream(stream_); }

  std::size_t read(Raw& raw, char* to, std::size_t bytes) override {
    ZSTD_outBuffer out{to, bytes, 0};
    while (out.pos == 0) {
      const std::string_view next = raw.next();
      if (next.empty() && is_between_) return 0;
      ZSTD_inBuffer in{next.data(), next.size(), 0};
      const std::size_t result = ZSTD_decompressStream(stream_, &out, &in);
      require_undamaged(ZSTD_isError(result) == 0,
                        "its zstd data is damaged: ", ZSTD_getErrorName(result));
      require_undamaged(!next.empty() || out.pos > 0, "its zstd data is truncated");
      raw.take(in.pos);
      is_between_ = result == 0;
    }
    return out.pos;
  }

 private:
  ZSTD_DStream* stream_;
  bool is_between_ = true;
};

SourceStream::SourceStream(const std::string& path, std::function<bool()> stops) {
  if (path == standard_input)
    raw_ = std::make_unique<StandardInput>(std::move(stops));
  else
    raw_ = std::make_unique<File>(path);
  switch (compression_of(std::string(raw_->next().substr(0, zstd_mark.size())))) {
    case Compression::gzip:
      decoder_ = std::make_unique<Gzip>();
      break;
    case Compression::zstd:
      decoder_ = std::make_unique<Zstd>();
      break;
    case Compression::none:
      decoder_ = std::make_unique<Plain>();
      break;
  }
}

SourceStream::~SourceStream() = default;

std::int64_t SourceStream::read(char* to, std::int64_t bytes) {
  if (failure_) std::rethrow_exception(failure_);
  const auto wanted = static_cast<std::size_t>(bytes);
  std::size_t got = 0;
  try {
    for (std::size_t part = 1; got < wanted && part > 0; got += part)
      part = decoder_->read(*raw_, to + got, wanted - got);
  } catch (const DamagedError&) {
    if (got == 0) throw;
    failure_ = std::current_exception();  // what was read before is sound
  }
  return static_cast<std::int64_t>(got);
}

std::int64_t SourceStream::taken() const { return raw_->taken(); }

std::optional<std::string> unpacked_head(const PlainFile& file, const std::string& head) {
  if (compression_of(head) == Compression::none) return std::nullopt;
  std::string unpacked(static_cast<std::size_t>(data::head_bytes), '\0');
  try {
    unpacked.resize(static_cast<std::size_t>(
        SourceStream(file.path()).read(unpacked.data(), data::head_bytes)));
  } catch (const DamagedError& error) {
    throw DamagedError(text("'", file.path(), "': ", error.what()));
  }
  return unpacked;
}

}  // namespace ostrakon::texts
