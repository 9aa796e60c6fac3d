// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace ostrakon::checkpoint {

/// The files that say which ids a Hugging Face tokenizer gives to which text, for messages.
constexpr const char* huggingface_tokenizer_files = "tokenizer.json, tokenizer.model or vocab.json";

/// Whether a path is such a file, by its name.
bool is_huggingface_tokenizer(const std::string& path);

/// A name for the tokenizer of a model in a folder, or of a file in it: the first of those files
/// that is there, or the path itself where it is one, by name and checksum (XXH3, 64 bits):
/// "tokenizer.json-3f2a9c01d4e5b6f7". Empty where there is none. Folders with the same file have
/// the same name, wherever they are.
std::string huggingface_tokenizer(const std::string& path);

}  // namespace ostrakon::checkpoint
