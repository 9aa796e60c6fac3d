// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>
#include <ostrakon/base/error.hpp>
#include <ostrakon/text/jinja/lexer.hpp>
#include <ostrakon/text/jinja/tree.hpp>
#include <string>
#include <vector>

namespace ostrakon::texts::jinja {

/// Parses expressions. The parser of statements builds on it.
class ExpressionParser {
 public:
  ExpressionParser(std::vector<Token> tokens, std::string file)
      : tokens_(std::move(tokens)), file_(std::move(file)) {}

 protected:
  /// Counts how deep functions of the parser have called each other.
  struct Nesting {
    explicit Nesting(ExpressionParser& parser);
    ~Nesting() { --parser_.nesting_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;
    ExpressionParser& parser_;
  };

  template <class... Parts>
  [[noreturn]] void fail_here(const Parts&... parts) const {
    throw Error(ostrakon::text(file_, ":", current().line, ": ", parts...));
  }
  static std::string described(const Token& token);
  static bool is_any(const std::string& text, std::initializer_list<const char*> others);

  const Token& current() const { return tokens_[at_]; }
  const Token& following() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  const Token& take() { return at_ + 1 < tokens_.size() ? tokens_[at_++] : tokens_[at_]; }
  bool skip_sign(const char* sign);
  bool skip_name(const char* name);
  void expect(TokenKind kind, const char* what);
  void expect_sign(const char* sign);
  std::string take_name(const char* what);

  /// An expression, or several with commas. `end`: a name that may follow a comma.
  ExpressionPointer parse_tuple(bool with_condition = true, const char* end = nullptr,
                                bool may_be_empty = false);
  ExpressionPointer parse_expression(bool with_condition = true);
  /// A filter whose name is the current token, and filters that follow '|'.
  ExpressionPointer parse_filter(ExpressionPointer value);
  ExpressionPointer parse_filters(ExpressionPointer value);
  Target parse_target(bool with_attributes, const char* end);

  Tree tree_;

 private:
  ExpressionPointer make(ExpressionKind kind, int line) const;
  void add_part(Expression& expression, ExpressionPointer part) const;
  ExpressionPointer with_parts(ExpressionKind kind, int line, ExpressionPointer first,
                               ExpressionPointer second) const;

  ExpressionPointer parse_conditional();
  ExpressionPointer parse_either();
  ExpressionPointer parse_both();
  ExpressionPointer parse_negation();
  ExpressionPointer parse_comparison();
  ExpressionPointer parse_sum();
  ExpressionPointer parse_concatenation();
  ExpressionPointer parse_product();
  ExpressionPointer parse_power();
  ExpressionPointer parse_unary(bool with_filters = true);
  ExpressionPointer parse_primary();
  ExpressionPointer parse_variable(const Token& token) const;
  ExpressionPointer parse_list();
  ExpressionPointer parse_dict();
  ExpressionPointer parse_postfix(ExpressionPointer value);
  ExpressionPointer parse_item(ExpressionPointer value);
  ExpressionPointer parse_test(ExpressionPointer value);
  void parse_arguments(Expression& call);
  Target parse_one_target(bool with_attributes);

  std::vector<Token> tokens_;
  std::string file_;
  std::size_t at_ = 0;
  int nesting_ = 0;
};

}  // namespace ostrakon::texts::jinja
