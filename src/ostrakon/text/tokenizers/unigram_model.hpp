// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <ostrakon/text/tokenizers/json_model.hpp>

namespace ostrakon::texts {

/// Reads a model of type "Unigram". With `takes_bytes` pieces are bytes, each of which stands for
/// its character of the byte-level alphabet; otherwise they are UTF-8. Throws Error.
std::unique_ptr<JsonModel> read_unigram(JsonFields& model, bool takes_bytes);

}  // namespace ostrakon::texts
