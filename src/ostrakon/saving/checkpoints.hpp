// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <ostrakon/checkpoint/file_layout.hpp>
#include <ostrakon/data/sample_source.hpp>
#include <ostrakon/mesh/mesh.hpp>
#include <ostrakon/saving/saver.hpp>
#include <ostrakon/trainer/trainer.hpp>
#include <string>
#include <vector>

namespace ostrakon::train {

struct CheckpointOptions {
  std::string folder;           ///< made if it does not exist; for one run at a time
  std::int64_t keep = 2;        ///< how many of the last checkpoints are kept
  std::int64_t keep_every = 0;  ///< checkpoints of multiples of this step are kept for good; 0:
                                ///< none
  checkpoint::Files files = checkpoint::Files::rank;  ///< one file per rank, per node, or in all
  bool verify = false;                                ///< whether to read back what was written
  /// Called on rank 0 with lines that are not errors but should be known: which checkpoints are
  /// damaged or were renamed, what could not be compared or removed. Not set: they go to stderr.
  std::function<void(const std::string& line)> tell = nullptr;
};

/// Saves a Trainer's state to a folder, "<folder>/step-00001200", and resumes from there, on any
/// number of ranks and with any sharding, with the same bits. All methods are collective over the
/// mesh and throw CollectiveError; a save that fails does not change earlier checkpoints. The
/// format is in docs/checkpoint-format.md, and ostrakon-checkpoint reads it.
///
/// A folder is for one run. If a run that does not resume saves into the folder of another, as with
/// ostrakon-train --resume none, the other's folder is renamed first: see set_aside().
class Checkpoints {
 public:
  /// Mesh, trainer and samples must outlive it. `samples`: the training data, whose identity() and
  /// choices() are kept, and which resume() tells to continue.
  /// Throws where options are invalid, or ranks have different options or data, and where the
  /// folder is not a directory and can't be made.
  Checkpoints(const CheckpointOptions& options, mesh::Mesh& mesh, Trainer& trainer,
              data::SampleSource& samples);

  /// Restores the newest checkpoint that is not damaged, and returns its step: training continues
  /// with the next one. Returns 0 where the folder has none: call Trainer::initialize. Damaged ones
  /// are renamed to "step-00001200.damaged". Throws where all checkpoints are damaged, and where
  /// the newest is of another model, optimizer or data, was saved by a later version, or has done
  /// more than TrainerSettings::steps.
  std::int64_t resume();

  /// Saves the state after the last step. With Policy::checkpoint_staging it is copied, and written
  /// while steps are taken: call advance() after each of them. Does nothing if that step is saved
  /// already. Throws where the parameters are not those after the last step: Trainer::is_intact().
  void save();
  /// Continues a save once no rank is writing. Cheap; does not wait.
  void advance();
  /// Waits for a save to end; to be called before the program ends.
  void finish();
  /// Calls steps(), then finish(), even if steps() throws CollectiveError, which is rethrown: a
  /// step that fails does not lose the checkpoint that is being written. After a failure on one
  /// rank alone it does not wait.
  void finish_after(const std::function<void()>& steps);

  /// Step of the newest checkpoint that is known to be saved, or was restored; 0: none.
  std::int64_t saved_step() const { return saved_step_; }
  /// After the first save: the new path of checkpoints of an earlier run; empty: there were none.
  const std::string& set_aside() const { return set_aside_; }

 private:
  void note(const std::optional<Saver::Saved>& saved);
  std::vector<std::string> require_same_run(const checkpoint::Manifest& manifest) const;
  void begin_from(const std::string& path, const std::vector<std::string>& damaged);
  void continue_samples(const Facts& kept);
  void take_folder();
  void tell(const std::vector<std::string>& lines) const;

  mesh::Mesh& mesh_;
  Trainer& trainer_;
  data::SampleSource& samples_;
  Facts data_;
  Saver saver_;
  std::function<void(const std::string&)> tell_;
  std::int64_t saved_step_ = 0;
  bool is_saved_ = false;  ///< whether the checkpoint of saved_step_ has the name that a save of it
                           ///< would have
  bool is_ours_ = false;   ///< whether the folder's content is of this run
  std::string set_aside_;
};

}  // namespace ostrakon::train
