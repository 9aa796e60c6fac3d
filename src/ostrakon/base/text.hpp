// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <locale>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>

namespace ostrakon {

namespace detail {

void append(std::string& text, std::int64_t part);
void append(std::string& text, std::uint64_t part);
void append(std::string& text, double part);

/// Appends `part` as a stream would write it. Streams are slow, so only types without an overload
/// use one.
template <class Part>
void append(std::string& text, const Part& part) {
  static_assert(!std::is_function_v<Part>, "text() takes no manipulators of streams");
  using Plain = std::decay_t<Part>;
  if constexpr (std::is_convertible_v<const Part&, std::string_view>) {
    text.append(std::string_view(part));
  } else if constexpr (std::is_same_v<Plain, char> || std::is_same_v<Plain, signed char> ||
                       std::is_same_v<Plain, unsigned char>) {
    text += static_cast<char>(part);
  } else if constexpr (std::is_integral_v<Plain> && std::is_signed_v<Plain>) {
    append(text, static_cast<std::int64_t>(part));
  } else if constexpr (std::is_integral_v<Plain>) {
    append(text, static_cast<std::uint64_t>(part));
  } else if constexpr (std::is_floating_point_v<Plain>) {
    append(text, static_cast<double>(part));
  } else {
    std::ostringstream stream;
    stream.imbue(std::locale::classic());
    stream << part;
    text += stream.str();
  }
}

}  // namespace detail

/// Joins its arguments as text: `text("width ", 7, " is odd")`. Numbers are written as in the
/// classic locale.
template <class... Parts>
std::string text(const Parts&... parts) {
  std::string joined;
  (detail::append(joined, parts), ...);
  return joined;
}

}  // namespace ostrakon
