// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <support/scratch_folder.hpp>
#include <utility>

namespace ostrakon::testing {

/// Writes into `folder`/bin a python3 that appends its arguments to the file "drawn" in the folder
/// in which it runs, a line for each call, and ends with this status. Returns the variable with
/// which a program finds it before all others.
inline std::pair<std::string, std::string> stand_in_python(const std::string& folder,
                                                           int status = 0) {
  namespace fs = std::filesystem;
  const fs::path bin = fs::path(folder) / "bin";
  fs::create_directories(bin);
  write_bytes((bin / "python3").string(),
              "#!/bin/sh\necho \"$*\" >>drawn\n[ " + std::to_string(status) +
                  " = 0 ] || echo 'python3: No module named ostrakon_report' >&2\nexit " +
                  std::to_string(status) + "\n");
  fs::permissions(bin / "python3", fs::perms::owner_all);
  const char* const path = std::getenv("PATH");
  return {"PATH", bin.string() + ":" + (path == nullptr ? "/usr/bin:/bin" : path)};
}

}  // namespace ostrakon::testing
