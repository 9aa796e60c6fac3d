// SPDX-License-Identifier: Apache-2.0
#include "run_folder.hpp"

#include <filesystem>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/file_type.hpp>
#include <ostrakon/base/files.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/checkpoint/folder.hpp>

#include "model_file.hpp"

namespace ostrakon::apps {

namespace fs = std::filesystem;

bool is_run_folder(const std::string& path) {
  if (!is_folder(path) || kind_of(path) != FileKind::safetensors) return false;
  const auto has = [&](const char* name) { return is_there((fs::path(path) / name).string()); };
  if (has("model.safetensors") || has("model.safetensors.index.json")) return false;
  return has("weights.h5") || has("checkpoints") || has("metrics.jsonl");
}

std::vector<std::string> models_of_run(const std::string& folder, std::ostream& log) {
  const fs::path weights = fs::path(folder) / "weights.h5";
  if (is_there(weights.string())) return {weights.string()};
  const checkpoint::Folder checkpoints((fs::path(folder) / "checkpoints").string());
  std::vector<std::string> found;
  for (const checkpoint::Folder::Entry& entry : checkpoints.list()) {
    if (entry.problem.empty())
      found.push_back(entry.path);
    else
      log << "damaged: " << printable(entry.problem) << "\n";
  }
  require(!found.empty(), "'", folder, "' is the folder of a run that has neither weights.h5 nor ",
          "a checkpoint that can be used");
  return found;
}

}  // namespace ostrakon::apps
