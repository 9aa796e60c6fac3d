// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <ostrakon/checkpoint/file_layout.hpp>
#include <ostrakon/data/sample_source.hpp>
#include <ostrakon/mesh/mesh.hpp>
#include <ostrakon/train/saver.hpp>
#include <ostrakon/train/trainer.hpp>
#include <string>
#include <vector>

namespace ostrakon::train {

struct CheckpointOptions {
  std::string folder;           ///< made where it is not there; for one run at a time
  std::int64_t keep = 2;        ///< of those saved last
  std::int64_t keep_every = 0;  ///< steps of which multiples are kept for good; 0: none
  checkpoint::Files files = checkpoint::Files::rank;  ///< one of each rank, each node, or one
  bool verify = false;                                ///< read back what was written
  /// Is told on rank 0, a line at a time, what is no error but should be known: which checkpoints
  /// are damaged or were renamed, what could not be compared or removed. Not set: to stderr.
  std::function<void(const std::string& line)> tell = nullptr;
};

/// Saves a Trainer's state to a folder, "<folder>/step-00001200", and resumes from there, on any
/// number of ranks and with any sharding, with the same bits. All methods are collective over the
/// mesh and throw AgreedError; a save that fails leaves earlier checkpoints as they were. The
/// format is in docs/checkpoint-format.md, and ostrakon-checkpoint reads it.
///
/// A folder is for one run. Where one that does not resume saves into the folder of another, as
/// with ostrakon-train --resume none, the folder is renamed first: see set_aside().
class Checkpoints {
 public:
  /// Mesh and trainer must outlive it. `samples`: the training data, whose identity() is kept.
  /// Throws where options can't be, or ranks have different ones, or different data, and where the
  /// folder is none, or is not there and can't be made.
  Checkpoints(const CheckpointOptions& options, mesh::Mesh& mesh, Trainer& trainer,
              const data::SampleSource& samples);

  /// Restores the newest checkpoint that is not damaged, and returns its step: training continues
  /// with the next one. 0 where the folder has none: call Trainer::initialize. Damaged ones are
  /// then renamed, to "step-00001200.damaged". Throws where there are some and all are damaged, and
  /// where the newest is of another model, optimizer or data, was saved by a later version, or has
  /// done more than TrainerSettings::steps.
  std::int64_t resume();

  /// Saves the state after the last step. With Policy::checkpoint_staging it is copied, and written
  /// while steps are taken: call advance() after each of them. Does nothing where that step is
  /// saved. Throws where the last step has left updated and old parameters: Trainer::is_intact().
  void save();
  /// Continues a save where no rank is still writing. Cheap; waits for nothing.
  void advance();
  /// Waits for a save, before the program ends.
  void finish();
  /// Calls steps(), then finish(), even where steps() throws AgreedError, which comes out: a step
  /// that fails does not lose the checkpoint that is being written. What fails on one rank alone
  /// can't be waited for.
  void finish_after(const std::function<void()>& steps);

  /// Step of the newest checkpoint that is known to be saved, or was restored; 0: none.
  std::int64_t saved_step() const { return saved_step_; }
  /// After the first save: where checkpoints of an earlier run are now; empty: there were none.
  const std::string& set_aside() const { return set_aside_; }

 private:
  void note(const std::optional<Saver::Saved>& saved);
  std::vector<std::string> require_same_run(const checkpoint::Manifest& manifest) const;
  void begin_from(const std::string& path, const std::vector<std::string>& damaged);
  void take_folder();
  void tell(const std::vector<std::string>& lines) const;

  mesh::Mesh& mesh_;
  Trainer& trainer_;
  Facts data_;
  Saver saver_;
  std::function<void(const std::string&)> tell_;
  std::int64_t saved_step_ = 0;
  bool is_saved_ = false;  ///< saved_step_: under the name that a save of it would have
  bool is_ours_ = false;   ///< the folder: what is in it is of this run
  std::string set_aside_;
};

}  // namespace ostrakon::train
