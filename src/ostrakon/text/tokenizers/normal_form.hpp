// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/text/tokenizers/unicode.hpp>
#include <string>
#include <string_view>

namespace ostrakon::texts {

/// A normal form of Unicode, as the library `tokenizers` has it: characters that are newer than
/// Unicode 9 stay as they are.
class NormalForm {
 public:
  enum class Kind { nfc, nfd, nfkc, nfkd };
  explicit NormalForm(Kind kind);
  void normalize(std::string& text) const;

 private:
  void append(std::string_view part, std::string& text) const;

  Kind kind_;
  CodePointSet changes_;  ///< characters that may change, or what is before or after them
};

}  // namespace ostrakon::texts
