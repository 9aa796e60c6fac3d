// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/facts.hpp>
#include <ostrakon/checkpoint/folder.hpp>
#include <ostrakon/checkpoint/parameter_source.hpp>
#include <ostrakon/checkpoint/reader.hpp>
#include <ostrakon/comm/communicator.hpp>
#include <ostrakon/config/settings.hpp>
#include <ostrakon/data/sample_source.hpp>
#include <ostrakon/mesh/mesh.hpp>
#include <ostrakon/run/console.hpp>
#include <ostrakon/run/run.hpp>
#include <ostrakon/trainer/trainer.hpp>
#include <string>
#include <vector>

namespace ostrakon::train {

/// Finds the checkpoint that a run resumes from and loads it: of several the newest that is not
/// damaged. A folder is changed only after the state is loaded, by tidy(). find(), load() and
/// require_none_since() are collective and throw CollectiveError.
class ResumeLoader {
 public:
  /// `own`: the checkpoints of this run's folder. All arguments must outlive this object.
  ResumeLoader(const config::Settings& settings, const RunOptions& options, mesh::Mesh& mesh,
               const checkpoint::Folder& own, Console& console);

  /// Searches checkpoints as options.resume says. Throws where all checkpoints found are damaged,
  /// or where the requested one does not exist.
  void find();
  /// After find(): whether there is a checkpoint to resume from; the same on all ranks.
  bool has_found() const { return !candidates_.empty(); }

  /// Throws where another run has saved in the folder after find(). `is_new_lock`, on rank 0:
  /// whether the run's folder could be locked only after find().
  void require_none_since(bool is_new_lock) const;

  /// Facts about the checkpoint that a run resumes from; the same on all ranks.
  struct Loaded {
    std::int64_t step = 0;           ///< step of the checkpoint
    std::string tokenizer;           ///< tokenizer of the parameters
    std::string huggingface_config;  ///< configuration of the model that the run began with; empty:
                                     ///< not known
    bool is_own = false;             ///< whether it is in this run's folder
    bool is_saved = false;           ///< whether it has the name that a save of its step would have
  };
  /// Loads the first candidate that is not damaged. Throws where that is of another model,
  /// optimizer or data than the settings and `samples` say, or where none is left. Samples then
  /// continue where they were.
  Loaded load(Trainer& trainer, data::SampleSource& samples);

  /// Renames other runs' checkpoints and damaged ones, so that they are not taken for good ones of
  /// this run, and removes what interrupted saves have left. On rank 0, after load(); throws Error.
  void tidy(const Loaded& loaded) const;

 private:
  [[noreturn]] void refuse_all() const;
  void note_damage(const std::string& path, const CollectiveDamagedError& damage);
  void require_source(const std::string& huggingface_config) const;
  void find_place(const std::string& path, Loaded& loaded);
  void say_origin(const std::string& path, const checkpoint::Manifest& manifest,
                  const std::vector<std::string>& notes) const;

  const config::Settings& settings_;
  const RunOptions& options_;
  mesh::Mesh& mesh_;
  const checkpoint::Folder& own_;
  Console& console_;
  std::vector<std::string> candidates_;  // paths, the best first
  std::vector<std::string> damaged_;     // paths of checkpoints that turned out to be damaged
  bool in_folder_ = false;               // whether candidates are all of a folder, rather than a
                                         // named one
};

/// Opens the weights that checkpoint.initial_weights names, on each rank, and prints which; rank 0
/// checks whether they are complete, unless in a dry run. The path may be a run's folder or a
/// folder of checkpoints: then they are its weights.h5, or else the newest checkpoint whose
/// manifest is not damaged. Null if the key is empty: weights are random. `tokenizer`: the
/// tokenizer of the training data. Adapters of lora.initial are added. Collective; throws
/// CollectiveError that names the key where weights or adapters can't be read, or are of another
/// model or tokenizer.
std::unique_ptr<checkpoint::ParameterSource> open_initial_weights(const config::Settings& settings,
                                                                  const RunOptions& options,
                                                                  const std::string& tokenizer,
                                                                  comm::Communicator& world,
                                                                  Console& console);

}  // namespace ostrakon::train
