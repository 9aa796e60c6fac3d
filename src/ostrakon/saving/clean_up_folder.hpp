// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <ostrakon/checkpoint/folder.hpp>
#include <string>
#include <vector>

namespace ostrakon::train {

/// Whether a checkpoint is one of the folder, by its name: it may itself be a link to an archive.
/// Throws Error where the system does not say.
bool is_in_folder(const std::string& checkpoint, const checkpoint::Folder& folder);

/// Throws Error unless the folder exists or can be made: makes it, with its parents, and removes
/// what it has made. Does not check whether files can be written to an existing folder: a run may
/// only read them. On rank 0.
void require_usable(const checkpoint::Folder& folder);

/// Tidies a run's folder, after the checkpoint that it resumes from is loaded: renames `damaged`
/// checkpoints that are in it, removes what interrupted saves have left, and points `latest` to the
/// step that was restored, if given. On rank 0. Returns a line for each name that has changed, and
/// for each failure; throws Error where remove_partial() does.
std::vector<std::string> clean_up_folder(const checkpoint::Folder& folder,
                                         const std::vector<std::string>& damaged,
                                         std::optional<std::int64_t> restored);

}  // namespace ostrakon::train
