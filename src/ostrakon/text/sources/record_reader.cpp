// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/text/sources/record_reader.hpp>

#include <sys/stat.h>

#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <string_view>
#include <utility>

namespace ostrakon::texts {
namespace {

constexpr std::int64_t read_block_bytes = 1 << 18;

std::int64_t size_of(std::string_view bytes) { return static_cast<std::int64_t>(bytes.size()); }

}  // namespace

Source Source::of(const std::string& path, SourceKind kind) {
  if (path == standard_input) return {path, kind, 0, 0};
  struct stat status {};
  const bool known = ::stat(path.c_str(), &status) == 0;
  require(known, "can't read '", path, "': ", system_error());
  constexpr std::int64_t nanoseconds = 1'000'000'000;
  return {path, kind, status.st_size, status.st_mtim.tv_sec * nanoseconds + status.st_mtim.tv_nsec};
}

std::string quoted(const Source& source) {
  return source.path == standard_input ? "the standard input" : "'" + source.path + "'";
}

std::string place_of(const Source& source, std::int64_t line) {
  return text(quoted(source), source.kind == SourceKind::parquet ? ", row " : ", line ", line);
}

/// Finds the documents in the blocks of a source.
class RecordReader::Splitter {
 public:
  explicit Splitter(RecordReader& reader) : reader_(reader) {}
  virtual ~Splitter() = default;
  virtual void block(std::string_view bytes) = 0;
  virtual void finish() { reader_.end_document(); }
  virtual bool is_inside_line() const { return false; }
  std::int64_t line() const { return line_; }

 protected:
  RecordReader& reader_;
  std::int64_t line_ = 1;
};

/// The source is one document.
class RecordReader::Whole : public Splitter {
 public:
  Whole(RecordReader& reader, const Place& begin) : Splitter(reader) { line_ = begin.line; }
  void block(std::string_view bytes) override {
    reader_.add(bytes);
    line_ += std::count(bytes.begin(), bytes.end(), '\n');
  }
};

/// Each line is a document, without the newline.
class RecordReader::Lines : public Splitter {
 public:
  Lines(RecordReader& reader, const Place& begin) : Splitter(reader) { line_ = begin.line; }
  void block(std::string_view bytes) override {
    while (!bytes.empty()) {
      const std::size_t end = std::min(bytes.find('\n'), bytes.size());
      if (end > 0) reader_.add(bytes.substr(0, end));  // empty lines take no memory
      bytes.remove_prefix(end);
      if (bytes.empty()) return;
      reader_.end_document();
      reader_.pass(1);
      bytes.remove_prefix(1);
      ++line_;
    }
  }
};

/// Each block is a row of Parquet, which is a document.
class RecordReader::Rows : public Splitter {
 public:
  Rows(RecordReader& reader, const Place& begin) : Splitter(reader) { line_ = begin.line; }
  void block(std::string_view bytes) override {
    reader_.add(bytes);
    reader_.end_document();
    ++line_;
  }
  /// A row without a document.
  void pass_over() { ++line_; }
};

/// Documents end at lines that equal the separator, but for a carriage return.
class RecordReader::AtSeparators : public Splitter {
 public:
  AtSeparators(RecordReader& reader, std::string separator, const Place& begin)
      : Splitter(reader),
        separator_(std::move(separator)),
        most_held_(separator_.size() + 3),
        inside_line_(begin.inside_line) {
    line_ = begin.line;
  }

  void block(std::string_view bytes) override {
    while (!bytes.empty()) {
      const std::size_t newline = bytes.find('\n');
      const bool is_complete = newline != std::string_view::npos;
      const std::string_view part = is_complete ? bytes.substr(0, newline + 1) : bytes;
      bytes.remove_prefix(part.size());
      if (inside_line_)
        emit(part);
      else
        begin_line(part, is_complete);
      if (is_complete) inside_line_ = false;
      if (is_complete) ++line_;
    }
  }
  void finish() override {
    if (!is_separator(held_)) emit(held_);
    held_.clear();
    reader_.end_document();
  }
  bool is_inside_line() const override { return inside_line_; }

 private:
  /// Adds to a line, which is held back as long as it may be a separator.
  void begin_line(std::string_view part, bool is_complete) {
    const std::size_t copied = std::min(part.size(), most_held_ - held_.size());
    held_ += part.substr(0, copied);
    const bool is_all = held_.size() < most_held_;
    if (is_complete && is_all && is_separator(held_)) {
      reader_.end_document();
      reader_.pass(size_of(held_));
      held_.clear();
    } else if (is_complete || !is_all) {
      inside_line_ = true;
      emit(std::exchange(held_, {}));
      emit(part.substr(copied));
    }
  }
  bool is_separator(std::string_view line) const {
    if (!line.empty() && line.back() == '\n') line.remove_suffix(1);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    return line == separator_;
  }
  void emit(std::string_view bytes) {
    if (!bytes.empty()) reader_.add(bytes);
  }

  std::string separator_;
  std::size_t most_held_;
  std::string held_;  // beginning of a line that may be a separator
  bool inside_line_;
};

RecordReader::RecordReader(ReadSettings settings, const Place& begin, std::function<bool()> stops)
    : settings_(std::move(settings)),
      stops_(std::move(stops)),
      block_(static_cast<std::size_t>(read_block_bytes), '\0'),
      place_(begin) {
  for (std::size_t i = 0; i < begin.source; ++i) taken_before_ += settings_.sources[i].bytes;
  if (begin.source < settings_.sources.size()) open_source();
}

RecordReader::~RecordReader() = default;

bool RecordReader::next(Portion& portion) {
  const auto portion_bytes = static_cast<std::size_t>(settings_.portion_bytes);
  for (;;) {
    const std::size_t ready =
        is_open_ && comes_whole() ? portion_.stretches.back().begin : portion_.bytes.size();
    const bool is_at_end = place_.source == settings_.sources.size();
    // Rows of Parquet without text count, too.
    const bool is_full = std::max(ready, portion_.stretches.size()) >= portion_bytes;
    if (is_full || (is_at_end && !portion_.stretches.empty())) {
      hand_out(portion);
      return true;
    }
    if (is_at_end) return false;
    if (!read_block()) finish_source();
  }
}

/// Hands the next bytes of the source to the splitter; returns false at its end.
bool RecordReader::read_block() {
  if (rows_) {
    std::optional<std::string_view> row;
    if (!rows_->next(row)) return false;
    if (row)
      splitter_->block(*row);
    else
      static_cast<Rows&>(*splitter_).pass_over();
    return true;
  }
  std::int64_t got = 0;
  try {
    got = stream_->read(block_.data(), read_block_bytes);
  } catch (const DamagedError& error) {
    throw DamagedError(
        text(place_of(settings_.sources[place_.source], splitter_->line()), ": ", error.what()));
  }
  if (got > 0) splitter_->block(std::string_view(block_).substr(0, static_cast<std::size_t>(got)));
  return got > 0;
}

bool RecordReader::comes_whole() const {
  return settings_.whole_documents || settings_.sources[place_.source].kind != SourceKind::text;
}

void RecordReader::open_source() {
  const Source& source = settings_.sources[place_.source];
  if (source.kind == SourceKind::parquet) {
    rows_ = open_parquet(source.path, settings_.columns, place_.line - 1);
    splitter_ = std::make_unique<Rows>(*this, place_);
    return;
  }
  stream_ = std::make_unique<SourceStream>(source.path, stops_);
  if (source.kind == SourceKind::json_lines)
    splitter_ = std::make_unique<Lines>(*this, place_);
  else if (settings_.separator)
    splitter_ = std::make_unique<AtSeparators>(*this, *settings_.separator, place_);
  else
    splitter_ = std::make_unique<Whole>(*this, place_);
  pass_over_read_part();
}

/// Passes over what was read before the place that was reached.
void RecordReader::pass_over_read_part() {
  const Source& source = settings_.sources[place_.source];
  for (std::int64_t at = 0, got = 0; at < place_.offset; at += got) {
    got = stream_->read(block_.data(), std::min(read_block_bytes, place_.offset - at));
    require(got > 0, quoted(source), " ends at byte ", at, " of its text, but ", place_.offset,
            " bytes were read of it before; it has changed");
  }
}

void RecordReader::finish_source() {
  splitter_->finish();
  taken_before_ += taken();
  splitter_.reset();
  stream_.reset();
  rows_.reset();
  const std::int64_t text_bytes = place_.text_bytes;
  place_ = {place_.source + 1, 0, 1, false, false, text_bytes};
  if (place_.source < settings_.sources.size()) open_source();
}

/// Adds text to the document, and ends it at the cut.
void RecordReader::add(std::string_view bytes) {
  const bool may_cut = settings_.cut >= 0 && place_.text_bytes <= settings_.cut;
  if (may_cut && place_.text_bytes + size_of(bytes) > settings_.cut) {
    auto at = static_cast<std::size_t>(settings_.cut - place_.text_bytes);
    while (at < bytes.size() && (static_cast<unsigned char>(bytes[at]) & 0xC0) == 0x80) ++at;
    // Where all the rest continues a character, the cut is moved into the next bytes.
    if (at == bytes.size()) settings_.cut = place_.text_bytes + size_of(bytes);
    if (at > 0) add_uncut(bytes.substr(0, at));
    if (at == bytes.size()) return;
    end_document();
    settings_.cut = -1;
    bytes.remove_prefix(at);
    add_uncut(bytes);
    open_.inside_line = splitter_->is_inside_line();
    return;
  }
  add_uncut(bytes);
}

void RecordReader::add_uncut(std::string_view bytes) {
  if (!is_open_) {
    open_ = here();
    open_.inside_line = false;
    Stretch stretch;
    stretch.begin = portion_.bytes.size();
    stretch.source = place_.source;
    stretch.line = splitter_->line();
    stretch.begins = !place_.inside_document;
    portion_.stretches.push_back(stretch);
    is_open_ = true;
    place_.inside_document = true;
  }
  portion_.bytes += bytes;
  place_.offset += size_of(bytes);
  place_.text_bytes += size_of(bytes);
  const std::size_t length = portion_.bytes.size() - portion_.stretches.back().begin;
  require(!comes_whole() || static_cast<std::int64_t>(length) <= most_document_bytes,
          place_of(settings_.sources[place_.source], portion_.stretches.back().line),
          ": a document of more than 1 GiB begins there; documents become tokens as a whole: "
          "--separator splits text");
}

/// Bytes of the open source that were read.
std::int64_t RecordReader::taken() const {
  return rows_ ? rows_->taken() : stream_ ? stream_->taken() : 0;
}

/// Bytes between documents.
void RecordReader::pass(std::int64_t bytes) { place_.offset += bytes; }

void RecordReader::end_document() {
  if (!place_.inside_document) return;
  if (!is_open_) add_uncut({});  // the document's last text was handed out
  portion_.stretches.back().end = portion_.bytes.size();
  portion_.stretches.back().ends = true;
  is_open_ = false;
  place_.inside_document = false;
}

Place RecordReader::here() const {
  Place place = place_;
  place.line = splitter_ ? splitter_->line() : 1;
  place.inside_line = splitter_ && splitter_->is_inside_line();
  return place;
}

void RecordReader::hand_out(Portion& portion) {
  Portion rest;
  portion_.after = here();
  if (is_open_ && comes_whole()) {
    const Stretch open = portion_.stretches.back();
    portion_.stretches.pop_back();
    rest.bytes = portion_.bytes.substr(open.begin);
    rest.stretches = {open};
    rest.stretches[0].begin = 0;
    portion_.bytes.resize(open.begin);
    portion_.after = open_;
  } else if (is_open_) {
    portion_.stretches.back().end = portion_.bytes.size();
    portion_.stretches.back().ends = false;
    is_open_ = false;
  }
  portion_.taken = taken_before_ + taken();
  portion = std::exchange(portion_, std::move(rest));
}

}  // namespace ostrakon::texts
