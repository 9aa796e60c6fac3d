// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <ostrakon/base/files/folder_lock.hpp>
#include <string>
#include <vector>

namespace ostrakon::apps {

/// Checks the output path of `option`, or of an argument of that name. Throws Error if a shell
/// should have expanded it, see require_expanded.
void require_output(const std::string& option, const std::string& path);

/// Throws Error where `path` is a pipe that nobody reads: opening it would wait for ever. A device
/// or a pipe with a reader, such as /dev/stdout, is fine.
void require_reader(const std::string& path);

/// For what a command is about to write as a whole. Throws Error where something has that name
/// already, but for a file where `overwrite` (the option --overwrite): that one is replaced when
/// the new one is good.
void require_free_name(const std::string& path, bool overwrite);

/// Makes a folder and those on the way, if they are not there. Throws Error.
void make_folder(const std::string& path);

/// Writes a file, a device or a pipe. Throws Error.
void write_file(const std::string& path, const std::string& text);

/// Locks the folders of runs that contain `out`, directly or in their checkpoints: none if there is
/// no such run, two if a link leads from one run's folder to another's. Throws Error if a run is
/// active.
std::vector<std::unique_ptr<FolderLock>> lock_run_folders(const std::string& out);

}  // namespace ostrakon::apps
