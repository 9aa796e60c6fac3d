// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <ostrakon/text/json_fields.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace ostrakon::texts {

/// Takes tokens one after the other, the text of each in any number of parts, of whole characters.
class TokenSink {
 public:
  virtual ~TokenSink() = default;
  virtual void begin() = 0;
  virtual void part(std::string_view text) = 0;
  virtual void end() = 0;
  /// No token follows.
  virtual void finish() = 0;
};

/// The `decoder` of a tokenizer.json. Its functions change nothing: any number of threads may call
/// them at once.
class Decoder {
 public:
  /// Puts a step before `next`: what it returns hands tokens on as soon as they are certain.
  using Step = std::function<std::unique_ptr<TokenSink>(std::unique_ptr<TokenSink> next)>;

  /// Returns what takes tokens and appends their text to `text`, which must outlive it.
  std::unique_ptr<TokenSink> start(std::string& text) const;

 private:
  friend Decoder read_decoder(JsonFields& fields);
  friend Decoder joining_decoder();
  std::vector<Step> steps_;
};

/// Reads a decoder of any type. Throws Error for one that is not implemented.
Decoder read_decoder(JsonFields& fields);

/// The decoder of a file without one: a space between tokens.
Decoder joining_decoder();

}  // namespace ostrakon::texts
