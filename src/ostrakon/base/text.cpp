// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/base/text.hpp>

#include <array>
#include <charconv>
#include <locale>

namespace ostrakon::detail {
namespace {

template <class Integer>
void append_integer(std::string& text, Integer part) {
  std::array<char, 24> digits;
  const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), part);
  static_cast<void>(error);  // can't fail: there is space for 64 bits
  text.append(digits.data(), end);
}

}  // namespace

void append(std::string& text, std::int64_t part) { append_integer(text, part); }

void append(std::string& text, std::uint64_t part) { append_integer(text, part); }

void append(std::string& text, double part) {
  std::ostringstream stream;
  stream.imbue(std::locale::classic());
  stream << part;
  text += stream.str();
}

}  // namespace ostrakon::detail
