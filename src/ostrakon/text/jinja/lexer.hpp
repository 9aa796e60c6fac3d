// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ostrakon::texts::jinja {

enum class TokenKind {
  data,
  variable_begin,
  variable_end,
  block_begin,
  block_end,
  name,
  string,
  integer,
  real,
  sign,
  end
};

struct Token {
  TokenKind kind;
  int line;
  std::string text;  ///< of data, a name, a string (unescaped) or a sign
  std::int64_t integer = 0;
  double real = 0;

  bool is(TokenKind other) const { return kind == other; }
  bool is_sign(const char* sign) const { return kind == TokenKind::sign && text == sign; }
  bool is_name(const char* name) const { return kind == TokenKind::name && text == name; }
};

/// Divides a template into tokens, as Jinja does with trim_blocks and lstrip_blocks: the first new
/// line after a block is removed, and white space between the begin of a line and a block. Throws
/// Error with `file` and line. `source` is UTF-8.
std::vector<Token> read_tokens(const std::string& source, const std::string& file);

}  // namespace ostrakon::texts::jinja
