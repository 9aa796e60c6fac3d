// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace ostrakon::checkpoint {

/// The files that define a Hugging Face tokenizer, for messages.
constexpr const char* huggingface_tokenizer_files = "tokenizer.json, tokenizer.model or vocab.json";

/// Whether a path has the name of such a file.
bool is_huggingface_tokenizer(const std::string& path);

/// Returns a name for the tokenizer next to a model in a folder, or in the folder of a file: the
/// first of huggingface_tokenizer_files that exists, or the path itself if it is one, with its
/// checksum (XXH3, 64 bits): "tokenizer.json-3f2a9c01d4e5b6f7". Empty if there is none. Equal files
/// have equal names, in any folder.
std::string huggingface_tokenizer(const std::string& path);

}  // namespace ostrakon::checkpoint
