// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <ostrakon/text/json_fields.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace ostrakon::texts {

/// The `model` of a tokenizer.json: makes ids of a piece of text, which normalizer and
/// pre-tokenizer have made. Its functions change nothing: any number of threads may call them at
/// once.
class JsonModel {
 public:
  virtual ~JsonModel() = default;

  /// Every id of a token is less than this.
  virtual std::int64_t vocabulary() const = 0;
  /// The number of tokens: less than vocabulary() where ids have gaps.
  virtual std::int64_t token_count() const = 0;

  virtual std::optional<std::int32_t> id_of(std::string_view token) const = 0;
  /// Returns the text of a token as it stands in the file; nothing where no token has this id.
  virtual std::optional<std::string_view> token(std::int32_t id) const = 0;

  /// Encodes pieces one after the other. Used by one thread.
  class Encoder {
   public:
    virtual ~Encoder() = default;
    /// Appends the ids of `piece`, which is not empty. The same piece always has the same ids:
    /// words that occur often are not encoded again. Throws Error for what has no id and none that
    /// stands for the unknown, if the file asks for one.
    virtual void encode(std::string_view piece, std::vector<std::int32_t>& ids) = 0;
  };
  virtual std::unique_ptr<Encoder> encoder() const = 0;
};

/// Reads a model of type "BPE". With `takes_bytes` pieces are bytes, each of which stands for its
/// character of the byte-level alphabet; otherwise they are UTF-8, as everywhere else.
std::unique_ptr<JsonModel> read_bpe(JsonFields& model, bool takes_bytes);

}  // namespace ostrakon::texts
