// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace ostrakon::checkpoint {

/// Throws Error if a path is weights of another format, which have to be converted first: a file,
/// by its first bytes or name; or a folder with such files, by their names, that has neither
/// safetensors under the names that transformers loads nor weights.h5. The message names the file
/// and the command that converts it.
void require_no_other_weights(const std::string& path);

}  // namespace ostrakon::checkpoint
