// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace ostrakon::texts {

/// The tokens that begin and end texts, as the files beside a tokenizer say.
struct TextEnds {
  std::optional<std::int32_t> begin, end;
  std::vector<std::int32_t> ends;  ///< those that end a text that is generated, `end` first
};

/// Returns the id of a token by its text, or nothing.
using IdOf = std::function<std::optional<std::int32_t>(const std::string& token)>;

/// Reads what tokenizer_config.json, special_tokens_map.json, config.json and
/// generation_config.json say, as far as they are in `folder`. A token of the first two counts more
/// than an id of the others, one of tokenizer_config.json most. `vocabulary`: every id is less.
/// Throws Error, naming file and field, for a token that the tokenizer does not have, and for
/// tokens that tokenizer_config.json adds to those of the tokenizer.
TextEnds read_text_ends(const std::string& folder, std::int64_t vocabulary, const IdOf& id_of);

}  // namespace ostrakon::texts
