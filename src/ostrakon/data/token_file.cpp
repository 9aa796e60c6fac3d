// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/data/token_file.hpp>

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/file_type.hpp>
#include <ostrakon/base/process.hpp>
#include <ostrakon/data/tokenizer.hpp>
#include <utility>

namespace ostrakon::data {
namespace {

constexpr const char* kind = "token file";
constexpr const char* format = "ostrakon-tokens";
constexpr std::int64_t plain_version = 1;   // without a mask
constexpr std::int64_t masked_version = 2;  // with a mask

// A window of a thousand tokens reads one or two chunks; a stripe of a parallel file system has
// many chunks.
constexpr std::int64_t chunk_tokens = 32768;
constexpr std::int64_t chunk_offsets = 2048;
constexpr std::int64_t verify_block = 32 * chunk_tokens;

// The list of sources is cut, as HDF5 limits the size of attributes, and a reader has no use for a
// thousand paths.
constexpr std::size_t longest_list = 32768;

hdf5::Type smallest_type(std::int64_t vocabulary) {
  if (vocabulary <= 1 << 8) return hdf5::Type::uint8;
  if (vocabulary <= 1 << 16) return hdf5::Type::uint16;
  return hdf5::Type::uint32;
}

std::string shortened(std::string value) {
  if (value.size() > longest_list) value = value.substr(0, longest_list) + "...";
  return value;
}

std::string join_lines(const std::vector<std::string>& lines) {
  std::string joined;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (joined.size() > longest_list) {
      return joined + text("\n... and ", lines.size() - i, " more");
    }
    joined += (i == 0 ? "" : "\n") + lines[i];
  }
  return joined;
}

/// Says what a weight is where a path that does not exist may have been meant to begin with one.
void require_no_meant_weight(const std::string& path) {
  if (is_there(path) || !broken_link(path).empty()) return;
  std::filesystem::path missing = path;  // its first part that does not exist
  while (!missing.parent_path().empty() && !is_there(missing.parent_path().string()))
    missing = missing.parent_path();
  require(missing.filename().string().find_first_of(" ,") == std::string::npos, kind, " '", path,
          "' does not exist, and nothing before a space in it was taken as a weight; expected a ",
          "number >= 0 and a space before the path as its weight, and ';' between files, as in ",
          "\"0.7 web.h5; 0.3 code.h5\"");
}

hdf5::File open_token_file(const std::string& path) {
  require_no_meant_weight(path);
  hdf5::File file = hdf5::File::open(path, kind);
  file.check_format(format, plain_version, masked_version);
  return file;
}

/// Returns the mask of a file of version 2.
std::optional<hdf5::Dataset> open_mask(const hdf5::File& file) {
  if (file.check_format(format, plain_version, masked_version) == plain_version)
    return std::nullopt;
  hdf5::Dataset mask = file.dataset("/loss_mask");
  require(mask.shape().size() == 1 && mask.type() == hdf5::Type::uint8, kind, " '", file.path(),
          "': /loss_mask holds ", hdf5::name(mask.type()), " in ", mask.shape().size(),
          " dimensions; expected uint8 in one");
  return mask;
}

void check_arrays(const std::string& path, const hdf5::Dataset& tokens,
                  const hdf5::Dataset& offsets) {
  using hdf5::Type;
  require(tokens.shape().size() == 1 && offsets.shape().size() == 1, kind, " '", path,
          "': /tokens and /document_offsets must have one dimension each");
  require(tokens.type() == Type::uint8 || tokens.type() == Type::uint16 ||
              tokens.type() == Type::uint32,
          kind, " '", path, "': /tokens holds ", hdf5::name(tokens.type()),
          "; expected uint8, uint16 or uint32");
  require(offsets.type() == Type::int64, kind, " '", path, "': /document_offsets holds ",
          hdf5::name(offsets.type()), "; expected int64");
}

TokenFileInfo read_info(const hdf5::File& file, const hdf5::Dataset& tokens,
                        const hdf5::Dataset& offsets, const std::optional<hdf5::Dataset>& mask) {
  check_arrays(file.path(), tokens, offsets);
  const hdf5::Object root = file.root();
  const auto text_if_there = [&](const char* name) {
    return root.has_attribute(name) ? root.text_attribute(name) : "";
  };
  TokenFileInfo info;
  info.tokenizer = root.text_attribute("tokenizer");
  info.vocabulary = root.integer_attribute("vocabulary");
  info.token_count = root.integer_attribute("token_count");
  if (root.has_attribute("byte_count")) info.byte_count = root.integer_attribute("byte_count");
  info.checksum = root.text_attribute("checksum");
  for (const auto& [name, id] :
       {std::pair{"document_begin", &info.document_begin}, {"document_end", &info.document_end}})
    if (root.has_attribute(name)) *id = root.integer_attribute(name);
  if (root.has_attribute("pairs")) info.pairs = root.integer_attribute("pairs");
  info.sources = text_if_there("sources");
  info.created = text_if_there("created");
  info.program = text_if_there("program");
  info.command_line = text_if_there("command_line");
  info.stored_as = hdf5::name(tokens.type());
  info.missing_filter =
      tokens.missing_filter().empty() ? offsets.missing_filter() : tokens.missing_filter();
  info.document_count = offsets.shape()[0] - 1;
  info.has_mask = mask.has_value();
  info.counted = info.token_count;
  if (!mask) return info;
  info.counted = root.integer_attribute("counted_token_count");
  info.mask_checksum = root.text_attribute("loss_mask_checksum");
  if (info.missing_filter.empty()) info.missing_filter = mask->missing_filter();
  return info;
}

void check_info(const std::string& path, const TokenFileInfo& info, const hdf5::Dataset& tokens,
                const std::optional<hdf5::Dataset>& mask) {
  require(info.vocabulary >= 1 && info.vocabulary <= std::numeric_limits<std::int32_t>::max(), kind,
          " '", path, "': a vocabulary of ", info.vocabulary);
  require(tokens.shape()[0] == info.token_count, kind, " '", path, "' holds ", tokens.shape()[0],
          " tokens, but its attribute 'token_count' says ", info.token_count);
  require(info.token_count > 0, kind, " '", path, "' is empty: it holds no tokens");
  require(info.document_count >= 1, kind, " '", path, "' has no documents");
  require(info.byte_count.value_or(1) > 0, kind, " '", path, "': its attribute 'byte_count' says ",
          info.byte_count.value_or(1), "; expected at least 1, or no such attribute");
  require(info.counted >= 0 && info.counted <= info.token_count, kind, " '", path,
          "': its attribute 'counted_token_count' says ", info.counted, "; expected 0 to ",
          info.token_count);
  require(!info.pairs || 2 * *info.pairs == info.document_count, kind, " '", path,
          "': ", info.document_count, " documents, but its attribute 'pairs' says ",
          info.pairs.value_or(0), "; expected two documents for each pair");
  require(!mask || mask->shape()[0] == info.token_count, kind, " '", path, "': /loss_mask has ",
          mask ? mask->shape()[0] : 0, " elements; expected ", info.token_count,
          ", one for each token");
}

void check_counts(const std::string& path, std::int64_t begin, const std::uint8_t* counts,
                  std::int64_t count) {
  const std::uint8_t* const end = counts + count;
  const std::uint8_t* const found = std::find_if(counts, end, [](int value) { return value > 1; });
  require(found == end, kind, " '", path, "': its loss mask has ", found == end ? 0 : int{*found},
          " at position ", begin + (found - counts), "; expected 0 or 1");
}

void check_tokens(const std::string& path, std::int64_t begin, const std::int32_t* tokens,
                  std::int64_t count, std::int64_t vocabulary) {
  std::uint32_t largest = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    largest = std::max(largest, static_cast<std::uint32_t>(tokens[i]));
  }
  if (largest < vocabulary) return;
  const auto* found = std::find_if(tokens, tokens + count, [&](std::int32_t token) {
    return static_cast<std::uint32_t>(token) >= vocabulary;
  });
  throw Error(text(kind, " '", path, "': token ", static_cast<std::uint32_t>(*found),
                   " at position ", begin + (found - tokens), " is not in its vocabulary of ",
                   vocabulary));
}

}  // namespace

// --- TokenFileWriter -----------------------------------------------------------------------------

TokenFileWriter::TokenFileWriter(const std::string& path, const std::string& tokenizer,
                                 std::int64_t vocabulary, const Provenance& provenance)
    : file_(hdf5::File::create(path, kind)),
      tokens_(file_.create_series("/tokens", smallest_type(vocabulary), chunk_tokens)),
      offsets_(file_.create_series("/document_offsets", hdf5::Type::int64, chunk_offsets)),
      vocabulary_(vocabulary) {
  require(vocabulary >= 1 && vocabulary <= std::numeric_limits<std::int32_t>::max(),
          "a vocabulary of ", vocabulary, "; expected 1 to ",
          std::numeric_limits<std::int32_t>::max());
  hdf5::Object root = file_.root();
  root.write_attribute("tokenizer", tokenizer);
  root.write_attribute("vocabulary", vocabulary);
  root.write_attribute("sources", join_lines(provenance.sources));
  root.write_attribute("created", utc_time());
  root.write_attribute("program", provenance.program);
  root.write_attribute("command_line", shortened(provenance.command_line));
  token_buffer_.reserve(chunk_tokens);
}

void TokenFileWriter::note_ends(std::optional<std::int32_t> begin,
                                std::optional<std::int32_t> end) {
  hdf5::Object root = file_.root();
  if (begin) root.write_attribute("document_begin", std::int64_t{*begin});
  if (end) root.write_attribute("document_end", std::int64_t{*end});
}

void TokenFileWriter::append(const std::int32_t* tokens, std::int64_t count,
                             const std::uint8_t* counts) {
  check_tokens(file_.path(), token_count_, tokens, count, vocabulary_);
  if (counts != nullptr) check_counts(file_.path(), token_count_, counts, count);
  const std::int64_t counted = counts == nullptr ? count : std::count(counts, counts + count, 1);
  if (counted < count && !mask_) begin_mask();
  token_count_ += count;
  counted_ += counted;
  while (count > 0) {
    const std::int64_t room = chunk_tokens - static_cast<std::int64_t>(token_buffer_.size());
    const std::int64_t part = std::min(room, count);
    token_buffer_.insert(token_buffer_.end(), tokens, tokens + part);
    if (mask_ && counts == nullptr)
      count_buffer_.insert(count_buffer_.end(), static_cast<std::size_t>(part), 1);
    else if (mask_)
      count_buffer_.insert(count_buffer_.end(), counts, counts + part);
    if (counts != nullptr) counts += part;
    tokens += part;
    count -= part;
    if (part == room) flush_tokens();
  }
}

void TokenFileWriter::end_document() {
  if (document_begin_ == token_count_) return;
  offset_buffer_.push_back(document_begin_);
  if (static_cast<std::int64_t>(offset_buffer_.size()) == chunk_offsets) flush_offsets();
  document_begin_ = token_count_;
  ++document_count_;
}

/// Makes the mask of the tokens so far, all of which count.
void TokenFileWriter::begin_mask() {
  mask_ = file_.create_series("/loss_mask", hdf5::Type::uint8, chunk_tokens, true);
  const std::vector<std::uint8_t> ones(static_cast<std::size_t>(chunk_tokens), 1);
  const auto buffered = static_cast<std::int64_t>(token_buffer_.size());
  for (std::int64_t at = 0; at < token_count_ - buffered; at += chunk_tokens) {
    mask_->append(hdf5::Type::uint8, ones.data(), chunk_tokens);
    mask_checksum_.add(ones.data(), chunk_tokens);
  }
  count_buffer_.assign(token_buffer_.size(), 1);
}

void TokenFileWriter::flush_tokens() {
  const auto count = static_cast<std::int64_t>(token_buffer_.size());
  if (mask_) {
    mask_->append(hdf5::Type::uint8, count_buffer_.data(), count);
    mask_checksum_.add(count_buffer_.data(), count);
    count_buffer_.clear();
  }
  tokens_.append(hdf5::Type::int32, token_buffer_.data(), count);
  checksum_.add(token_buffer_.data(), count * static_cast<std::int64_t>(sizeof(std::int32_t)));
  token_buffer_.clear();
}

void TokenFileWriter::flush_offsets() {
  offsets_.append(hdf5::Type::int64, offset_buffer_.data(),
                  static_cast<std::int64_t>(offset_buffer_.size()));
  offset_buffer_.clear();
}

void TokenFileWriter::complete() {
  require(token_count_ > 0, "no tokens to write to '", file_.path(), "'");
  end_document();
  offset_buffer_.push_back(token_count_);
  flush_offsets();
  flush_tokens();
  file_.write_format(format, mask_ ? masked_version : plain_version);
  hdf5::Object root = file_.root();
  root.write_attribute("token_count", token_count_);
  if (mask_) {
    root.write_attribute("counted_token_count", counted_);
    root.write_attribute("loss_mask_checksum", mask_checksum_.hex());
  }
  if (byte_count_ > 0) root.write_attribute("byte_count", byte_count_);
  if (has_pairs_) root.write_attribute("pairs", document_count_ / 2);
  root.write_attribute("checksum", checksum_.hex());
  file_.complete();
  TokenFile(file_.partial_path()).verify();
  complete_ = true;
}

void TokenFileWriter::finish() {
  if (!complete_) complete();
  file_.commit();
}

std::optional<double> TokenFileInfo::bytes_per_token() const {
  if (!byte_count) return std::nullopt;
  return static_cast<double>(*byte_count) / static_cast<double>(token_count);
}

Facts TokenFileInfo::identity() const {
  Facts facts = {{"dataset", "tokens"},
                 {"checksum", checksum},
                 {"number of tokens", std::to_string(token_count)},
                 {"vocabulary", std::to_string(vocabulary)},
                 {"tokenizer", tokenizer}};
  if (has_mask) facts.push_back({"checksum of its loss mask", mask_checksum});
  return facts;
}

// --- TokenFile -----------------------------------------------------------------------------------

TokenFile::TokenFile(const std::string& path)
    : file_(open_token_file(path)),
      tokens_(file_.dataset("/tokens")),
      offsets_(file_.dataset("/document_offsets")),
      mask_(open_mask(file_)),
      info_(read_info(file_, tokens_, offsets_, mask_)) {
  check_info(path, info_, tokens_, mask_);
}

void TokenFile::read(std::int64_t begin, std::int64_t count, std::int32_t* tokens,
                     std::uint8_t* counts) const {
  // Tokens are read as unsigned: values beyond int32 are then refused with their true value.
  tokens_.read(hdf5::Type::uint32, begin, count, tokens);
  check_tokens(path(), begin, tokens, count, info_.vocabulary);
  if (counts == nullptr) return;
  if (!mask_) {
    std::fill_n(counts, count, std::uint8_t{1});
    return;
  }
  mask_->read(hdf5::Type::uint8, begin, count, counts);
  check_counts(path(), begin, counts, count);
}

TokenFile::Range TokenFile::document(std::int64_t index) const {
  require(index >= 0 && index < info_.document_count, kind, " '", path(), "' has no document ",
          index, "; it has ", info_.document_count, ", counted from 0");
  std::array<std::int64_t, 2> range{};
  offsets_.read(hdf5::Type::int64, index, 2, range.data());
  require(0 <= range[0] && range[0] < range[1] && range[1] <= info_.token_count, kind, " '", path(),
          "': document ", index, " runs from token ", range[0], " to ", range[1], " of ",
          info_.token_count);
  return {range[0], range[1]};
}

/// Passes all offsets to `work`, in blocks, after a check.
template <class Work>
void TokenFile::for_offsets(const Work& work) const {
  std::vector<std::int64_t> offsets(static_cast<std::size_t>(chunk_offsets));
  std::int64_t before = -1;
  for (std::int64_t begin = 0; begin <= info_.document_count; begin += chunk_offsets) {
    const std::int64_t count = std::min(chunk_offsets, info_.document_count + 1 - begin);
    offsets_.read(hdf5::Type::int64, begin, count, offsets.data());
    for (std::int64_t i = 0; i < count; ++i) {
      require(offsets[static_cast<std::size_t>(i)] > before && (begin + i > 0 || offsets[0] == 0),
              kind, " '", path(), "' is damaged: entry ", begin + i, " of /document_offsets is ",
              offsets[static_cast<std::size_t>(i)], " after ", before);
      before = offsets[static_cast<std::size_t>(i)];
    }
    work(offsets.data(), count);
  }
  require(before == info_.token_count, kind, " '", path(),
          "' is damaged: its documents end at token ", before, " of ", info_.token_count);
}

std::vector<std::int64_t> TokenFile::document_offsets() const {
  std::vector<std::int64_t> all;
  all.reserve(static_cast<std::size_t>(info_.document_count + 1));
  for_offsets([&](const std::int64_t* offsets, std::int64_t count) {
    all.insert(all.end(), offsets, offsets + count);
  });
  return all;
}

void TokenFile::verify() const {
  const auto longest = static_cast<std::size_t>(std::min(verify_block, info_.token_count));
  std::vector<std::int32_t> block(longest);
  std::vector<std::uint8_t> counts(longest);
  hdf5::Checksum checksum, mask_checksum;
  std::int64_t bytes = 0;  // size of the text if tokens are bytes
  std::int64_t counted = 0;
  for (std::int64_t begin = 0; begin < info_.token_count; begin += verify_block) {
    const std::int64_t count = std::min(verify_block, info_.token_count - begin);
    read(begin, count, block.data(), counts.data());
    counted += std::count(counts.begin(), counts.begin() + count, 1);
    mask_checksum.add(counts.data(), count);
    checksum.add(block.data(), count * static_cast<std::int64_t>(sizeof(std::int32_t)));
    bytes += std::count_if(block.begin(), block.begin() + count,
                           [](std::int32_t token) { return token < ByteTokenizer::end_of_text; });
  }
  require(checksum.hex() == info_.checksum, kind, " '", path(),
          "' is damaged: the checksum of its tokens is ", checksum.hex(), ", expected ",
          info_.checksum);
  require(info_.tokenizer != ByteTokenizer::name || info_.byte_count.value_or(bytes) == bytes, kind,
          " '", path(), "' is damaged: its attribute 'byte_count' says ",
          info_.byte_count.value_or(bytes), ", but it holds ", bytes, " bytes of text");
  require(!mask_ || mask_checksum.hex() == info_.mask_checksum, kind, " '", path(),
          "' is damaged: the checksum of its loss mask is ", mask_checksum.hex(), ", expected ",
          info_.mask_checksum);
  require(counted == info_.counted, kind, " '", path(),
          "' is damaged: its attribute 'counted_token_count' says ", info_.counted, ", but ",
          counted, " tokens count");
  for_offsets([](const std::int64_t*, std::int64_t) {});
}

}  // namespace ostrakon::data
