// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <ostrakon/text/json_fields.hpp>
#include <string>

namespace ostrakon::texts {

/// The `normalizer` of a tokenizer.json: changes text before it is cut into pieces. Its functions
/// change nothing else: any number of threads may call them at once.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  /// Changes `text`, valid UTF-8, in place.
  virtual void normalize(std::string& text) const = 0;
  /// Whether it may leave out, or change together, the first characters of a text: it is not known
  /// then whether what is first is the begin of the text that it had.
  virtual bool moves_begin() const { return false; }
};

/// Reads a normalizer of any type. Throws Error for one that is not implemented.
std::unique_ptr<Normalizer> read_normalizer(JsonFields& fields);

}  // namespace ostrakon::texts
