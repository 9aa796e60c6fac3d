// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

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

/// What copy_huggingface_companions() has done.
struct CopiedFiles {
  std::vector<std::string> names;
  std::string note;  ///< why files are missing; empty: none is
};

/// Copies what belongs to a model besides config.json and tensors (files of its tokenizer, its chat
/// template, generation_config.json) from the folder that its weights came from into `to`.
/// `tokenizer`: that of the weights, as huggingface_tokenizer() names it; with another one in the
/// folder nothing is copied. Throws Error if a file can't be read or written.
CopiedFiles copy_huggingface_companions(const std::string& from, const std::string& to,
                                        const std::string& tokenizer);

}  // namespace ostrakon::checkpoint
