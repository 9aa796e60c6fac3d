// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/facts.hpp>
#include <ostrakon/checkpoint/folder.hpp>
#include <ostrakon/checkpoint/reader.hpp>
#include <ostrakon/config/settings.hpp>
#include <ostrakon/mesh/mesh.hpp>
#include <ostrakon/train/console.hpp>
#include <ostrakon/train/run_options.hpp>
#include <ostrakon/train/trainer.hpp>
#include <string>
#include <vector>

namespace ostrakon::train {

/// Finds the checkpoint that a run resumes from and loads it: of several the newest that is not
/// damaged. Nothing in a folder is changed before the state is loaded, by tidy(). find(), load()
/// and require_none_since() are collective and throw AgreedError.
class ResumeLoader {
 public:
  /// `own`: the checkpoints of this run's folder. All of it must outlive this.
  ResumeLoader(const config::Settings& settings, const RunOptions& options, mesh::Mesh& mesh,
               const checkpoint::Folder& own, Console& console);

  /// Looks for checkpoints, as options.resume says. Throws where there are some and all of them are
  /// damaged, or where the requested one is not there.
  void find();
  /// After find(): whether there is a checkpoint to resume from; the same on all ranks.
  bool has_found() const { return !candidates_.empty(); }

  /// On rank 0, `is_new_lock`: the run's folder could be locked only after find(). Throws where
  /// another run has saved there meanwhile.
  void require_none_since(bool is_new_lock) const;

  /// What a run resumes with, besides its state; the same on all ranks.
  struct Loaded {
    std::int64_t step = 0;           ///< of the checkpoint
    std::string tokenizer;           ///< of the parameters
    std::string huggingface_config;  ///< of the model that the run began with; empty: not known
    bool is_own = false;             ///< in this run's folder
    bool is_saved = false;           ///< under the name that a save of its step would have
  };
  /// Loads the first candidate that is not damaged. Throws where that is of another model,
  /// optimizer or data than the settings and `data` say, or none is left.
  Loaded load(Trainer& trainer, const Facts& data);

  /// Another run's checkpoints are not to be taken for those of this one, nor damaged ones for good
  /// ones: renames them, and removes what interrupted saves have left behind. On rank 0, after
  /// load(); throws Error.
  void tidy(const Loaded& loaded) const;

 private:
  [[noreturn]] void refuse_all() const;
  void note_damage(const std::string& path, const AgreedDamage& damage);
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
  std::vector<std::string> damaged_;     // paths of those that turned out to be so
  bool in_folder_ = false;               // all of a folder, rather than one that was named
};

}  // namespace ostrakon::train
