// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <ostrakon/text/tokenizers/pattern.hpp>
#include <string>

namespace ostrakon::texts {

/// Returns a pattern for a regular expression in the syntax of Oniguruma, which the library
/// `tokenizers` uses, with that library's Unicode 16. PCRE2 finds the matches. Throws Error for
/// what PCRE2 does not have, what means something else in it, and what matches empty text.
std::unique_ptr<Pattern> regex_pattern(const std::string& regex);

/// Returns the regular expression for PCRE2 that matches what Oniguruma matches with `regex`.
/// Throws Error as regex_pattern() does.
std::string regex_for_pcre2(const std::string& regex);

/// Returns the inside of a PCRE2 character class that has exactly the characters of a general
/// category of Unicode 16, "L" or "Lu", whatever version PCRE2 knows. Throws Error for another
/// name.
std::string class_for_pcre2(const std::string& category);

/// Returns a character as PCRE2 takes it, in a class and elsewhere.
std::string character_for_pcre2(std::uint32_t code_point);

/// Returns the inside of a PCRE2 character class with the characters of a set.
std::string ranges_for_pcre2(const CodePointSet& set);

}  // namespace ostrakon::texts
