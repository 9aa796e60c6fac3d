// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <ostrakon/text/tokenizer.hpp>

namespace ostrakon::texts {

/// Returns data::ByteTokenizer as a tokenizer: its tokens are bytes, whatever they stand for, and
/// one that ends a document. It is special, has no text that would be found in a text, and is
/// decoded to nothing.
std::unique_ptr<Tokenizer> byte_tokenizer();

}  // namespace ostrakon::texts
