// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace ostrakon::config {

/// A deck's text made fit for Teuchos' YAML parser, line for line: comments are gone, and what the
/// parser can't read or reads wrongly ('#' inside text, bytes beyond ASCII) is written as ~XX in
/// hexadecimal; restore_text undoes it. Throws Error starting with `name` for what is certainly
/// wrong: bytes that are not text, a quote that is not closed, a type tag.
std::string prepare_yaml(const std::string& text, const std::string& name);

/// The text that prepare_yaml turned into `prepared`.
std::string restore_text(const std::string& prepared);

/// Whether `prepared`, a value, is an integer with more digits than a double holds: the parser
/// would round it, so prepare_yaml makes text of it.
bool is_long_integer(const std::string& prepared);

/// Line `number` (from 1) of `text`, trimmed, shortened and printable, in quotes, for a message.
std::string quote_line(const std::string& text, long number);

}  // namespace ostrakon::config
