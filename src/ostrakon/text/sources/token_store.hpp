// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <ostrakon/base/files/files.hpp>
#include <ostrakon/base/files/writer_lock.hpp>
#include <ostrakon/base/hdf5/hdf5.hpp>
#include <ostrakon/text/sources/document_encoder.hpp>
#include <string>
#include <vector>

namespace ostrakon::texts {

/// How far a build has come.
struct BuildState {
  Place place;  ///< where reading goes on
  std::int64_t documents = 0;
  std::int64_t ids = 0;         ///< of all documents, with the open one
  std::int64_t text_bytes = 0;  ///< of all documents, with the open one
  std::int64_t open_ids = 0;    ///< of the document whose end was not read yet
  std::int64_t open_bytes = 0;
  std::int64_t bad = 0;           ///< records that were passed over
  std::int64_t without_text = 0;  ///< documents that were left out, as they have no text
  bool is_complete = false;       ///< whether all sources were read
  std::int64_t cut = -1;          ///< ReadSettings::cut
};

/// The ids of all documents in their order, in files of a folder, and a journal of how far they are
/// sound: a build that was ended at any time goes on from its last commit. Files are: `ids` (uint8,
/// uint16 or uint32, the smallest for the vocabulary), `counts` (uint8, where documents have any),
/// `documents` (for each two int64: ids and bytes of text), and `journal` (lines of JSON: what is
/// built, then the commits).
class TokenStore {
 public:
  struct Settings {
    std::string folder;
    std::int64_t vocabulary = 0;
    bool has_counts = false;
  };

  /// Whether a folder has a commit, from which a build could go on.
  static bool has_commits(const std::string& folder);

  /// Begins a store, in place of one that may be there. `what`: an object of what is built. Throws
  /// Error, also if another process uses the folder.
  static std::unique_ptr<TokenStore> begin(const Settings& settings, const nlohmann::json& what);
  /// Opens a store at its last commit. Throws Error if it is damaged or of something else: `what`
  /// differs, which is named.
  static std::unique_ptr<TokenStore> resume(const Settings& settings, const nlohmann::json& what);
  ~TokenStore();

  const BuildState& state() const { return state_; }
  /// Bytes that the store has for each id, with whether it counts.
  std::int64_t stored_bytes() const { return id_bytes() + (settings_.has_counts ? 1 : 0); }

  void append(const EncodedPortion& portion);
  void note_bad(std::int64_t records) { state_.bad += records; }
  /// Writes what was appended to disk, and notes it in the journal.
  void commit();
  /// All sources were read; commits, unless there was no commit before: what takes so little time
  /// leaves nothing behind when it fails.
  void complete();
  /// Forgets all documents, to read them again with a cut (ReadSettings::cut) at this byte.
  void begin_again(std::int64_t cut);

  /// A document. The pointers hold until the next one; `counts` is null where all count.
  struct Document {
    std::int64_t index = 0;
    const std::int32_t* ids = nullptr;
    const std::uint8_t* counts = nullptr;
    std::int64_t count = 0, text_bytes = 0;
    bool ends = true;  ///< false: more ids of the same document follow
  };
  /// Reads all documents; long ones in parts, the last of which has `text_bytes` of all.
  void read(const std::function<void(const Document&)>& use);

  /// Removes the folder, also if the build is not complete.
  void remove();

 private:
  /// A file that grows, with a checksum of what is in it.
  class Series;

  explicit TokenStore(const Settings& settings);
  void empty();
  void write_line(const nlohmann::json& line);
  void load(const nlohmann::json& what);
  std::int64_t id_bytes() const;
  std::vector<Series*> all_series();

  Settings settings_;
  std::unique_ptr<WriterLock> lock_;  // on the journal
  std::unique_ptr<PlainFile> journal_;
  std::int64_t journal_bytes_ = 0;
  std::unique_ptr<Series> ids_, counts_, documents_;
  BuildState state_;
  std::string what_;  // first line of the journal
  bool has_commits_ = false;
};

}  // namespace ostrakon::texts
