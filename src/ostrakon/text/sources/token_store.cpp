// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/text/sources/token_store.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/file_type.hpp>
#include <ostrakon/base/format.hpp>
#include <sstream>
#include <system_error>
#include <utility>

namespace ostrakon::texts {
namespace {

using JournalJson = nlohmann::json;

constexpr std::size_t store_block_bytes = 1 << 20;

std::string in_folder(const std::string& folder, const char* name) { return folder + "/" + name; }

/// The whole lines of a journal: one that was being written when the program ended is left out.
std::vector<std::string> whole_lines(const std::string& path) {
  const PlainFile file(path, PlainFile::Mode::read);
  std::string all(static_cast<std::size_t>(file.size()), '\0');
  file.read(0, file.size(), all.data());
  std::vector<std::string> lines;
  for (std::size_t begin = 0, end = 0; (end = all.find('\n', begin)) != std::string::npos;
       begin = end + 1)
    lines.push_back(all.substr(begin, end - begin));
  return lines;
}

JournalJson place_json(const Place& place) {
  return {{"source", place.source},
          {"offset", place.offset},
          {"line", place.line},
          {"inside_line", place.inside_line},
          {"inside_document", place.inside_document},
          {"text_bytes", place.text_bytes}};
}

Place place_of(const JournalJson& json) {
  return {json.at("source"),      json.at("offset"),          json.at("line"),
          json.at("inside_line"), json.at("inside_document"), json.at("text_bytes")};
}

JournalJson state_json(const BuildState& state) {
  return {{"place", place_json(state.place)},
          {"documents", state.documents},
          {"ids", state.ids},
          {"text_bytes", state.text_bytes},
          {"open_ids", state.open_ids},
          {"open_bytes", state.open_bytes},
          {"bad", state.bad},
          {"without_text", state.without_text},
          {"is_complete", state.is_complete},
          {"cut", state.cut}};
}

BuildState state_of(const JournalJson& json) {
  return {
      place_of(json.at("place")), json.at("documents"),  json.at("ids"), json.at("text_bytes"),
      json.at("open_ids"),        json.at("open_bytes"), json.at("bad"), json.at("without_text"),
      json.at("is_complete"),     json.at("cut")};
}

std::string path_of(const JournalJson& source) { return shown(source.value("path", "")); }

/// Returns what is different between the sources of a build and those that are to be read now: the
/// first one that is.
std::string difference_of(const JournalJson& before, const JournalJson& now) {
  const auto lacks = [](const JournalJson& sources, const JournalJson& wanted) {
    return std::none_of(sources.begin(), sources.end(), [&](const JournalJson& source) {
      return path_of(source) == path_of(wanted);
    });
  };
  for (const JournalJson& source : before)
    if (lacks(now, source))
      return text("source ", path_of(source), ", which is missing from the list of sources now");
  for (const JournalJson& source : now)
    if (lacks(before, source)) return text("other sources, without ", path_of(source));
  for (std::size_t i = 0; i < std::min(before.size(), now.size()); ++i) {
    if (path_of(before[i]) != path_of(now[i]))
      return text("sources in another order: number ", i + 1, " was ", path_of(before[i]),
                  ", and is now ", path_of(now[i]));
    if (before[i] != now[i])
      return text("source ", before[i].dump(), ", which is now ", now[i].dump());
  }
  return text(before.size(), " sources, not ", now.size());
}

/// Throws Error that names the most telling difference of what was built and what is to be built.
void require_same(const std::string& folder, const JournalJson& before, const JournalJson& now) {
  if (before == now) return;
  const std::string begun = text("'", folder, "' was begun with ");
  const std::string instead =
      "; --resume continues the build that was begun. To begin anew, remove that folder";
  std::vector<std::string> names = {"format", "tokenizer", "sources"};
  for (const auto& entry : now.items()) names.push_back(entry.key());
  for (const std::string& name : names) {
    const JournalJson former = before.value(name, JournalJson());
    const JournalJson value = now.value(name, JournalJson());
    if (former == value) continue;
    const bool has_sources = name == "sources" && former.is_array();
    throw Error(text(begun,
                     has_sources ? difference_of(former, value)
                                 : text(name, " ", former.dump(), ", not ", value.dump()),
                     instead));
  }
  throw Error(text(begun, "other settings", instead));
}

}  // namespace

// --- Series --------------------------------------------------------------------------------------

class TokenStore::Series {
 public:
  explicit Series(const std::string& path) : file_(path, PlainFile::Mode::write) {}

  void append(const void* data, std::size_t bytes) {
    buffer_.append(static_cast<const char*>(data), bytes);
    if (buffer_.size() >= store_block_bytes) flush();
  }
  void flush() {
    const auto bytes = static_cast<std::int64_t>(buffer_.size());
    file_.write(size_, bytes, buffer_.data());
    checksum_->add(buffer_.data(), bytes);
    size_ += bytes;
    buffer_.clear();
  }
  void sync() {
    flush();
    file_.sync();
  }
  void empty() { cut_to(0); }
  /// Forgets all after the first `bytes`, which are read again for their checksum.
  void cut_to(std::int64_t bytes) {
    buffer_.clear();
    checksum_.emplace();
    const std::int64_t there = file_.size();
    require(there >= bytes, "'", file_.path(), "' has ", there, " bytes; expected at least ", bytes,
            ", which were written. Remove its folder to begin anew");
    file_.resize(bytes);
    std::string block(store_block_bytes, '\0');
    for (size_ = 0; size_ < bytes;) {
      const std::int64_t part =
          std::min(bytes - size_, static_cast<std::int64_t>(store_block_bytes));
      file_.read(size_, part, block.data());
      checksum_->add(block.data(), part);
      size_ += part;
    }
  }
  void read(std::int64_t at, std::int64_t bytes, void* to) const { file_.read(at, bytes, to); }
  std::int64_t size() const { return size_; }
  std::string checksum() const { return checksum_->hex(); }
  const std::string& path() const { return file_.path(); }

 private:
  PlainFile file_;
  std::string buffer_;
  std::int64_t size_ = 0;
  std::optional<hdf5::Checksum> checksum_{std::in_place};
};

// --- TokenStore ----------------------------------------------------------------------------------

bool TokenStore::has_commits(const std::string& folder) {
  const std::string journal = in_folder(folder, "journal");
  return is_there(journal) && whole_lines(journal).size() > 1;
}

TokenStore::TokenStore(const Settings& settings) : settings_(settings) {
  std::error_code failure;
  std::filesystem::create_directories(settings_.folder, failure);
  require(!failure, "can't make folder '", settings_.folder, "': ", failure.message());
  const std::string journal = in_folder(settings_.folder, "journal");
  lock_ = std::make_unique<WriterLock>(journal);
  journal_ = std::make_unique<PlainFile>(journal, PlainFile::Mode::write);
  ids_ = std::make_unique<Series>(in_folder(settings_.folder, "ids"));
  documents_ = std::make_unique<Series>(in_folder(settings_.folder, "documents"));
  if (settings_.has_counts)
    counts_ = std::make_unique<Series>(in_folder(settings_.folder, "counts"));
}

TokenStore::~TokenStore() {
  // What can't be continued is of no use.
  if (!has_commits_ && journal_) remove();
}

std::vector<TokenStore::Series*> TokenStore::all_series() {
  std::vector<Series*> all = {ids_.get(), documents_.get()};
  if (counts_) all.push_back(counts_.get());
  return all;
}

std::unique_ptr<TokenStore> TokenStore::begin(const Settings& settings, const JournalJson& what) {
  std::unique_ptr<TokenStore> store(new TokenStore(settings));
  store->what_ = what.dump();
  store->empty();
  return store;
}

std::unique_ptr<TokenStore> TokenStore::resume(const Settings& settings, const JournalJson& what) {
  std::unique_ptr<TokenStore> store(new TokenStore(settings));
  store->has_commits_ = true;  // also if it can't be used now
  store->load(what);
  return store;
}

void TokenStore::empty() {
  has_commits_ = false;
  state_ = {};
  journal_->resize(0);
  journal_bytes_ = 0;
  for (Series* series : all_series()) series->empty();
  const std::string line = what_ + "\n";
  journal_->write(0, static_cast<std::int64_t>(line.size()), line.data());
  journal_bytes_ = static_cast<std::int64_t>(line.size());
}

void TokenStore::write_line(const JournalJson& json) {
  const std::string line = json.dump() + "\n";
  journal_->write(journal_bytes_, static_cast<std::int64_t>(line.size()), line.data());
  journal_bytes_ += static_cast<std::int64_t>(line.size());
  journal_->sync();
}

void TokenStore::load(const JournalJson& what) {
  const std::string path = journal_->path();
  const std::vector<std::string> lines = whole_lines(path);
  require(lines.size() > 1, "'", path, "' has no commit to continue from");
  what_ = lines[0];
  for (const std::string& line : lines)
    journal_bytes_ += static_cast<std::int64_t>(line.size()) + 1;
  journal_->resize(journal_bytes_);
  JournalJson checksums;
  try {
    require_same(settings_.folder, JournalJson::parse(what_), what);
    const JournalJson last = JournalJson::parse(lines.back());
    state_ = state_of(last.at("state"));
    checksums = last.at("checksums");
  } catch (const JournalJson::exception& error) {
    throw DamagedError(
        text("'", path, "' is damaged: ", error.what(), ". Remove its folder to begin anew"));
  }
  ids_->cut_to(state_.ids * id_bytes());
  documents_->cut_to(state_.documents * 2 * static_cast<std::int64_t>(sizeof(std::int64_t)));
  if (counts_) counts_->cut_to(state_.ids);
  std::size_t next = 0;
  for (const Series* series : all_series())
    require_undamaged(checksums.at(next++) == series->checksum(), "'", series->path(),
                      "' is damaged: its checksum is not that of what was written. Remove its "
                      "folder to begin anew");
}

void TokenStore::append(const EncodedPortion& portion) {
  switch (id_bytes()) {
    case 4:
      ids_->append(portion.ids.data(), portion.ids.size() * sizeof(std::int32_t));
      break;
    case 2: {
      const std::vector<std::uint16_t> narrow(portion.ids.begin(), portion.ids.end());
      ids_->append(narrow.data(), narrow.size() * sizeof(std::uint16_t));
      break;
    }
    default: {
      const std::vector<std::uint8_t> narrow(portion.ids.begin(), portion.ids.end());
      ids_->append(narrow.data(), narrow.size());
    }
  }
  if (counts_ && portion.counts.empty()) {
    const std::vector<std::uint8_t> ones(portion.ids.size(), 1);
    counts_->append(ones.data(), ones.size());
  } else if (counts_) {
    counts_->append(portion.counts.data(), portion.counts.size());
  }
  for (const EncodedPortion::Stretch& stretch : portion.stretches) {
    state_.ids += stretch.ids;
    state_.text_bytes += stretch.text_bytes;
    state_.open_ids += stretch.ids;
    state_.open_bytes += stretch.text_bytes;
    if (!stretch.ends) continue;
    const std::array<std::int64_t, 2> document = {state_.open_ids, state_.open_bytes};
    documents_->append(document.data(), sizeof document);
    ++state_.documents;
    state_.open_ids = state_.open_bytes = 0;
  }
  state_.without_text += portion.without_text;
  state_.place = portion.after;
}

void TokenStore::commit() {
  JournalJson checksums = JournalJson::array();
  for (Series* series : all_series()) {
    series->sync();
    checksums.push_back(series->checksum());
  }
  write_line({{"state", state_json(state_)}, {"checksums", checksums}});
  has_commits_ = true;
}

void TokenStore::complete() {
  state_.is_complete = true;
  if (has_commits_) commit();
}

void TokenStore::begin_again(std::int64_t cut) {
  empty();
  state_.cut = cut;
}

std::int64_t TokenStore::id_bytes() const {
  return settings_.vocabulary <= 1 << 8 ? 1 : settings_.vocabulary <= 1 << 16 ? 2 : 4;
}

void TokenStore::read(const std::function<void(const Document&)>& use) {
  for (Series* series : all_series()) series->flush();
  constexpr std::int64_t most_ids = 1 << 18;
  std::vector<char> stored(static_cast<std::size_t>(most_ids * id_bytes()));
  std::vector<std::int32_t> ids(static_cast<std::size_t>(most_ids));
  std::vector<std::uint8_t> counts(static_cast<std::size_t>(counts_ ? most_ids : 0));
  std::vector<std::array<std::int64_t, 2>> lengths(1 << 12);
  std::int64_t first = 0, filled = 0;  // the ids that are in `ids`
  const auto fill = [&](std::int64_t at) {
    first = at;
    filled = std::min(most_ids, state_.ids - at);
    ids_->read(at * id_bytes(), filled * id_bytes(), stored.data());
    const auto widen = [&](auto zero) {
      using Stored = decltype(zero);
      for (std::int64_t i = 0; i < filled; ++i) {
        Stored id = zero;
        std::memcpy(&id, stored.data() + static_cast<std::size_t>(i) * sizeof id, sizeof id);
        ids[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(id);
      }
    };
    if (id_bytes() == 1) widen(std::uint8_t{});
    if (id_bytes() == 2) widen(std::uint16_t{});
    if (id_bytes() == 4) widen(std::uint32_t{});
    if (counts_) counts_->read(at, filled, counts.data());
  };
  const auto size = static_cast<std::int64_t>(sizeof(lengths[0]));
  for (std::int64_t document = 0, at = 0; document < state_.documents; ++document) {
    const std::int64_t in_block = document % static_cast<std::int64_t>(lengths.size());
    if (in_block == 0)
      documents_->read(
          document * size,
          size * std::min(static_cast<std::int64_t>(lengths.size()), state_.documents - document),
          lengths.data());
    const auto [count, text_bytes] = lengths[static_cast<std::size_t>(in_block)];
    for (std::int64_t done = 0; done < count;) {
      if (at == first + filled) fill(at);
      const std::int64_t part = std::min(count - done, first + filled - at);
      done += part;
      const auto place = static_cast<std::size_t>(at - first);
      use({document, ids.data() + place, counts_ ? counts.data() + place : nullptr, part,
           text_bytes, done == count});
      at += part;
    }
  }
}

void TokenStore::remove() {
  ids_.reset();
  counts_.reset();
  documents_.reset();
  journal_.reset();
  std::error_code ignored;
  for (const char* name : {"ids", "counts", "documents"})
    std::filesystem::remove(in_folder(settings_.folder, name), ignored);
  if (lock_) lock_->remove();
  lock_.reset();
  std::filesystem::remove(settings_.folder, ignored);
}

}  // namespace ostrakon::texts
