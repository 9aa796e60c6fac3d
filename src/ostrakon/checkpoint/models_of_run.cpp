// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/checkpoint/models_of_run.hpp>

#include <filesystem>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/file_type.hpp>
#include <ostrakon/checkpoint/folder.hpp>

namespace ostrakon::checkpoint {

namespace fs = std::filesystem;

bool is_run_folder(const std::string& path) {
  if (!is_folder(path) || is_checkpoint(path) || !Folder(path).names().empty()) return false;
  const auto has = [&](const char* name) { return is_there((fs::path(path) / name).string()); };
  if (has("model.safetensors") || has("model.safetensors.index.json")) return false;
  return has("weights.h5") || has("checkpoints") || has("metrics.jsonl");
}

std::vector<std::string> models_of_run(const std::string& folder,
                                       const std::function<void(const std::string&)>& tell) {
  const std::string weights = (fs::path(folder) / "weights.h5").string();
  if (is_there(weights)) return {weights};
  const std::string broken = broken_link(weights);
  require(broken.empty(), broken);
  const bool is_of_checkpoints = !Folder(folder).names().empty();
  std::vector<std::string> found;
  for (const Folder::Entry& entry :
       Folder(is_of_checkpoints ? folder : (fs::path(folder) / "checkpoints").string()).list()) {
    if (entry.problem.empty())
      found.push_back(entry.path);
    else
      tell(entry.problem);
  }
  require(!found.empty(), "'", folder,
          is_of_checkpoints ? "' has no checkpoint that can be used; expected one"
                            : "' is the folder of a run that has neither weights.h5 nor a "
                              "checkpoint that can be used; expected one of these");
  return found;
}

}  // namespace ostrakon::checkpoint
