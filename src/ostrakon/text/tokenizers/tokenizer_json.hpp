// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <ostrakon/text/tokenizer.hpp>
#include <string>

namespace ostrakon::texts {

/// Opens a tokenizer.json of the library `tokenizers`. Throws Error.
std::unique_ptr<Tokenizer> open_tokenizer_json(const std::string& path);

}  // namespace ostrakon::texts
