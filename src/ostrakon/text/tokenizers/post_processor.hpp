// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/text/json_fields.hpp>
#include <ostrakon/text/tokenizer.hpp>

namespace ostrakon::texts {

/// Reads a post-processor of any type: what it puts around a single text. Throws Error for one that
/// is not implemented.
Tokenizer::Around read_post_processor(JsonFields& fields);

}  // namespace ostrakon::texts
