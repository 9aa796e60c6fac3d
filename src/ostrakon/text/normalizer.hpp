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
};

/// Reads a normalizer of any type. Throws Error for one that is not implemented.
std::unique_ptr<Normalizer> read_normalizer(JsonFields& fields);

}  // namespace ostrakon::texts
