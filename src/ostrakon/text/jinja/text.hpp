// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// Functions of Python's str on UTF-8. Characters are code points. Letters outside of ASCII change
// their case one by one; those that become several, or depend on their neighbours, are refused
// (Problem), except where said.

namespace ostrakon::texts::jinja {

/// Returns the character that begins at `at`, and moves `at` behind it. `text` is UTF-8.
char32_t next_character(std::string_view text, std::size_t& at);
void append_character(std::string& text, char32_t character);
std::size_t count_characters(std::string_view text);
std::vector<std::string_view> characters_of(std::string_view text);

/// Whether str.isspace() holds, or str.isprintable().
bool is_space(char32_t character);
bool is_printable(char32_t character);
bool is_ascii(std::string_view text);

enum class Side { left, right, both };
/// `characters`: those that are removed; white space if there are none given.
std::string_view strip(std::string_view text, const std::optional<std::string>& characters,
                       Side side);
/// Without a separator: at white space. `most`: splits, any number if negative.
std::vector<std::string> split(std::string_view text, const std::optional<std::string>& separator,
                               std::int64_t most);
std::vector<std::string> split_from_right(std::string_view text,
                                          const std::optional<std::string>& separator,
                                          std::int64_t most);
std::vector<std::string> split_lines(std::string_view text, bool keeps_ends);
std::string replace(std::string_view text, std::string_view old, std::string_view with,
                    std::int64_t most);

std::string upper(std::string_view text);
std::string lower(std::string_view text);
/// str.capitalize().
std::string capitalized(std::string_view text);
/// str.title(), of ASCII alone.
std::string titled(std::string_view text);
/// Jinja's filter `title`.
std::string words_titled(std::string_view text);
/// str.islower() and str.isupper(), of ASCII alone.
bool is_lower(std::string_view text);
bool is_upper(std::string_view text);

/// repr() of a str and of a float.
std::string repr_of_text(std::string_view text);
std::string real_text(double value);

/// int(text, base) and float(text); nothing for text that is no number.
std::optional<std::int64_t> parse_integer(std::string_view text, int base);
std::optional<double> parse_real(std::string_view text);

}  // namespace ostrakon::texts::jinja
