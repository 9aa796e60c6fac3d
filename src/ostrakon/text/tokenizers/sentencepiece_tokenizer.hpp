// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <ostrakon/text/tokenizer.hpp>
#include <string>

namespace ostrakon::texts {

/// Opens a model of SentencePiece (tokenizer.model, or another file of that kind) by
/// SentencePiece's own library, so that ids are those of its processor without extra options. Its
/// control pieces
/// ("<s>") are the special tokens. A text that has special tokens in it is cut there, and each part
/// is encoded as a text of its own. Throws Error, naming the file, if it can't be read or is no
/// such model, has a denormalizer, or if Ostrakon was built without the library.
std::unique_ptr<Tokenizer> open_sentencepiece(const std::string& path);

}  // namespace ostrakon::texts
