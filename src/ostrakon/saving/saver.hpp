// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <ostrakon/checkpoint/file_layout.hpp>
#include <ostrakon/checkpoint/folder.hpp>
#include <ostrakon/checkpoint/manifest.hpp>
#include <ostrakon/config/settings.hpp>
#include <ostrakon/mesh/mesh.hpp>
#include <ostrakon/saving/background.hpp>
#include <ostrakon/saving/save_folder.hpp>
#include <ostrakon/trainer/trainer.hpp>
#include <string>
#include <utility>
#include <vector>

namespace ostrakon::train {

/// Settings of where and how checkpoints are saved, and their metadata.
struct SaverSettings {
  std::string folder;           ///< folder of checkpoints
  std::int64_t keep = 2;        ///< how many of the last checkpoints are kept
  std::int64_t keep_every = 0;  ///< checkpoints of multiples of this step are kept for good; 0:
                                ///< none
  checkpoint::Files files = checkpoint::Files::rank;
  bool verify = false;     ///< whether to read back what was written
  double bandwidth = 0.0;  ///< MB/s per rank at most; 0: no limit
  std::string deck;        ///< text of the deck, if the run has one
  std::string optimizer;   ///< name of the optimizer
};

/// Returns the saver settings of a deck.
SaverSettings saver_settings(const config::Settings& settings);

/// Saves the state of a run, one checkpoint at a time, in three jobs: rank 0 makes a folder; every
/// rank writes its part; and when all have done so rank 0 adds the manifest and gives the folder
/// its name. If the plan has a staging copy of the state, the jobs overlap with training:
///
///     saver.begin(...);            // copies, then a thread writes
///     ... steps; after each of them, where no rank is_busy(): saver.advance() ...
///     saver.finish();              // or waits for what is left
///
/// begin, advance and finish are collective, and throw CollectiveError where a save has failed,
/// with the rank, its host and the file; nothing is left of it then, and other checkpoints are not
/// changed.
class Saver {
 public:
  struct Saved {
    std::string path;
    std::int64_t step = 0;
    std::int64_t bytes = 0;  ///< size of all files
    double seconds = 0.0;    ///< since begin()
    double stalled = 0.0;    ///< how long training stalled for the save
    double worked = 0.0;     ///< how long this rank worked on the save, which predicts the next one
    std::string remark;      ///< on rank 0: other failures, or renamed files
  };

  /// Mesh and trainer must outlive it.
  Saver(SaverSettings settings, mesh::Mesh& mesh, Trainer& trainer);
  Saver(const config::Settings& settings, mesh::Mesh& mesh, Trainer& trainer)
      : Saver(saver_settings(settings), mesh, trainer) {}

  /// Computes what is written where, as the first begin() would; collective.
  void prepare();

  /// The folder of checkpoints; changed only on rank 0, and only if no save is in progress.
  const checkpoint::Folder& folder() const { return folder_.folder(); }

  /// Whether there is a staging copy of the state, from which it saves while steps continue.
  bool can_overlap() const { return trainer_.has_staging(); }
  /// Bytes of a checkpoint on all ranks together, after prepare().
  std::int64_t bytes() const { return bytes_; }

  /// Begins a save. `asynchronous`: training continues meanwhile, if there is a staging copy.
  /// `tokenizer`: the tokenizer of the training data. `huggingface_config`: see
  /// checkpoint::Manifest. Waits for a save that has not ended: call finish() before, for its
  /// result.
  void begin(const checkpoint::Progress& progress, const std::string& tokenizer, bool asynchronous,
             const std::string& huggingface_config = "");

  /// Sets what later checkpoints keep of the training data: data::facts_to_keep.
  void describe_data(const Facts& kept) { manifest_.data = kept; }
  /// Sets a function that rank 0 calls before it changes names in the folder; if it throws, the
  /// save fails.
  void guard(std::function<void()> check) { folder_.guard(std::move(check)); }

  /// Whether a save has begun and is not known to have ended; the same on all ranks.
  bool is_saving() const { return current_.phase != Phase::none; }
  /// Whether this rank is working on the save.
  bool is_busy() const { return worker_.is_busy(); }
  /// Advances the save, if no rank is busy; returns the checkpoint once it is complete.
  std::optional<Saved> advance();
  /// Waits for the end of the save in progress.
  std::optional<Saved> finish();

 private:
  enum class Phase { none, opening, writing, committing };

  /// The part of each checkpoint that this rank writes; the same throughout a run.
  struct Part {
    checkpoint::FileLayout file;      // the file that this rank writes to
    std::vector<std::size_t> slices;  // for each piece of the file that is this rank's: its slice
  };
  /// The save in progress. A job reads all of it and changes the marked members; nothing else
  /// accesses it while the job runs.
  struct Current {
    Phase phase = Phase::none;
    double began = 0.0, stalled = 0.0;
    std::string partial;              // folder; changed by the first job
    checkpoint::FileEntry entry;      // changed by the second job
    SaveFolder::Committed committed;  // changed by the third job
  };

  void write();
  std::vector<std::string> gather_entries();
  void fail(const std::string& why);

  SaverSettings settings_;
  comm::Communicator& world_;
  Trainer& trainer_;
  SaveFolder folder_;  // changed only by rank 0

  bool prepared_ = false;
  checkpoint::Manifest manifest_;  // without files
  Part part_;
  std::int64_t bytes_ = 0;

  Current current_;
  std::atomic<bool> urgent_{false};  // something waits for the job
  SaveWorker worker_;                // last member: it ends before the members that its job uses
};

}  // namespace ostrakon::train
