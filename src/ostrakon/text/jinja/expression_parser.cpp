// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/text/jinja/expression_parser.hpp>

#include <algorithm>
#include <ostrakon/base/format.hpp>
#include <ostrakon/text/jinja/builtins.hpp>

namespace ostrakon::texts::jinja {
namespace {

/// Nothing in a template is nested deeper: neither the parser nor the evaluation of what it made
/// overflows the stack.
constexpr int deepest_nesting = 100;
constexpr int deepest_expression = 200;

}  // namespace

bool ExpressionParser::is_any(const std::string& text, std::initializer_list<const char*> others) {
  return std::any_of(others.begin(), others.end(),
                     [&](const char* other) { return text == other; });
}

ExpressionParser::Nesting::Nesting(ExpressionParser& parser) : parser_(parser) {
  if (parser.nesting_ >= deepest_nesting)
    parser.fail_here("nested deeper than ", deepest_nesting, " levels");
  ++parser.nesting_;
}

std::string ExpressionParser::described(const Token& token) {
  switch (token.kind) {
    case TokenKind::end:
      return "the template's end";
    case TokenKind::variable_end:
      return "'}}'";
    case TokenKind::block_end:
      return "'%}'";
    case TokenKind::string:
      return "the string " + shown(token.text);
    case TokenKind::real:
      return "a number";
    default:
      return shown(token.text);
  }
}

bool ExpressionParser::skip_sign(const char* sign) {
  if (!current().is_sign(sign)) return false;
  take();
  return true;
}

bool ExpressionParser::skip_name(const char* name) {
  if (!current().is_name(name)) return false;
  take();
  return true;
}

void ExpressionParser::expect(TokenKind kind, const char* what) {
  if (!current().is(kind)) fail_here("expected ", what, ", found ", described(current()));
  take();
}

void ExpressionParser::expect_sign(const char* sign) {
  if (!skip_sign(sign)) fail_here("expected '", sign, "', found ", described(current()));
}

std::string ExpressionParser::take_name(const char* what) {
  if (!current().is(TokenKind::name))
    fail_here("expected ", what, ", found ", described(current()));
  return take().text;
}

ExpressionPointer ExpressionParser::make(ExpressionKind kind, int line) const {
  auto expression = std::make_unique<Expression>();
  expression->kind = kind;
  expression->line = line;
  return expression;
}

void ExpressionParser::add_part(Expression& expression, ExpressionPointer part) const {
  if (part) {
    expression.depth = std::max(expression.depth, part->depth + 1);
    if (expression.depth > deepest_expression)
      fail_here("an expression is nested deeper than ", deepest_expression, " levels");
  }
  expression.parts.push_back(std::move(part));
}

ExpressionPointer ExpressionParser::with_parts(ExpressionKind kind, int line,
                                               ExpressionPointer first,
                                               ExpressionPointer second) const {
  auto expression = make(kind, line);
  add_part(*expression, std::move(first));
  add_part(*expression, std::move(second));
  return expression;
}

ExpressionPointer ExpressionParser::parse_tuple(bool with_condition, const char* end,
                                                bool may_be_empty) {
  const int line = current().line;
  std::vector<ExpressionPointer> parts;
  bool is_tuple = false;
  while (true) {
    if (!parts.empty()) expect_sign(",");
    if (current().is(TokenKind::variable_end) || current().is(TokenKind::block_end) ||
        current().is_sign(")") || (end != nullptr && current().is_name(end)))
      break;
    parts.push_back(parse_expression(with_condition));
    if (!current().is_sign(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !parts.empty()) return std::move(parts.front());
  if (parts.empty() && !may_be_empty)
    fail_here("expected an expression, found ", described(current()));
  auto tuple = make(ExpressionKind::tuple, line);
  for (auto& part : parts) add_part(*tuple, std::move(part));
  return tuple;
}

ExpressionPointer ExpressionParser::parse_expression(bool with_condition) {
  const Nesting nesting(*this);
  return with_condition ? parse_conditional() : parse_either();
}

ExpressionPointer ExpressionParser::parse_conditional() {
  const Nesting nesting(*this);
  auto value = parse_either();
  while (current().is_name("if")) {
    auto conditional = make(ExpressionKind::conditional, take().line);
    add_part(*conditional, std::move(value));
    add_part(*conditional, parse_either());
    add_part(*conditional, skip_name("else") ? parse_conditional() : nullptr);
    value = std::move(conditional);
  }
  return value;
}

ExpressionPointer ExpressionParser::parse_either() {
  auto left = parse_both();
  while (current().is_name("or")) {
    const int line = take().line;
    left = with_parts(ExpressionKind::either, line, std::move(left), parse_both());
  }
  return left;
}

ExpressionPointer ExpressionParser::parse_both() {
  auto left = parse_negation();
  while (current().is_name("and")) {
    const int line = take().line;
    left = with_parts(ExpressionKind::both, line, std::move(left), parse_negation());
  }
  return left;
}

ExpressionPointer ExpressionParser::parse_negation() {
  if (!current().is_name("not")) return parse_comparison();
  const Nesting nesting(*this);
  auto negation = make(ExpressionKind::negation, take().line);
  add_part(*negation, parse_negation());
  return negation;
}

ExpressionPointer ExpressionParser::parse_comparison() {
  auto first = parse_sum();
  ExpressionPointer comparison;
  while (true) {
    std::string operation;
    const int line = current().line;
    if (current().is(TokenKind::sign) &&
        is_any(current().text, {"==", "!=", "<", "<=", ">", ">="})) {
      operation = take().text;
    } else if (skip_name("in")) {
      operation = "in";
    } else if (current().is_name("not") && following().is_name("in")) {
      take();
      take();
      operation = "not in";
    } else {
      return comparison ? std::move(comparison) : std::move(first);
    }
    if (!comparison) {
      comparison = make(ExpressionKind::comparison, line);
      add_part(*comparison, std::move(first));
    }
    comparison->operators.push_back(operation);
    add_part(*comparison, parse_sum());
  }
}

ExpressionPointer ExpressionParser::parse_sum() {
  auto left = parse_concatenation();
  while (current().is_sign("+") || current().is_sign("-")) {
    const Token& token = take();
    left =
        with_parts(ExpressionKind::arithmetic, token.line, std::move(left), parse_concatenation());
    left->text = token.text;
  }
  return left;
}

ExpressionPointer ExpressionParser::parse_concatenation() {
  auto first = parse_product();
  if (!current().is_sign("~")) return first;
  auto concatenation = make(ExpressionKind::concatenation, current().line);
  add_part(*concatenation, std::move(first));
  while (skip_sign("~")) add_part(*concatenation, parse_product());
  return concatenation;
}

ExpressionPointer ExpressionParser::parse_product() {
  auto left = parse_power();
  while (current().is(TokenKind::sign) && is_any(current().text, {"*", "/", "//", "%"})) {
    const Token& token = take();
    left = with_parts(ExpressionKind::arithmetic, token.line, std::move(left), parse_power());
    left->text = token.text;
  }
  return left;
}

ExpressionPointer ExpressionParser::parse_power() {
  auto left = parse_unary();
  while (current().is_sign("**")) {
    const Token& token = take();
    left = with_parts(ExpressionKind::arithmetic, token.line, std::move(left), parse_unary());
    left->text = token.text;
  }
  return left;
}

ExpressionPointer ExpressionParser::parse_unary(bool with_filters) {
  const Nesting nesting(*this);
  ExpressionPointer value;
  if (current().is_sign("-") || current().is_sign("+")) {
    const Token& token = take();
    value = make(ExpressionKind::sign, token.line);
    value->text = token.text;
    add_part(*value, parse_unary(false));
  } else {
    value = parse_primary();
  }
  value = parse_postfix(std::move(value));
  if (!with_filters) return value;
  while (true) {
    if (current().is_sign("|")) {
      value = parse_filters(std::move(value));
    } else if (current().is_name("is")) {
      value = parse_test(std::move(value));
    } else if (current().is_sign("(")) {
      auto call = make(ExpressionKind::call, current().line);
      add_part(*call, std::move(value));
      parse_arguments(*call);
      value = std::move(call);
    } else {
      return value;
    }
  }
}

ExpressionPointer ExpressionParser::parse_variable(const Token& token) const {
  if (is_any(token.text, {"true", "True", "false", "False", "none", "None"})) {
    auto constant = make(ExpressionKind::constant, token.line);
    constant->constant = is_any(token.text, {"none", "None"})
                             ? Value::none()
                             : Value::boolean(is_any(token.text, {"true", "True"}));
    return constant;
  }
  if (is_any(token.text,
             {"self", "super", "caller", "varargs", "kwargs", "lipsum", "cycler", "joiner"}))
    fail_here("the variable '", token.text, "' is not implemented");
  return make(ExpressionKind::name, token.line);
}

ExpressionPointer ExpressionParser::parse_primary() {
  const Token& token = current();
  auto constant = make(ExpressionKind::constant, token.line);
  switch (token.kind) {
    case TokenKind::name: {
      auto variable = parse_variable(take());
      if (variable->kind == ExpressionKind::name) variable->name = tree_.name(token.text);
      return variable;
    }
    case TokenKind::string: {
      std::string joined;
      while (current().is(TokenKind::string)) joined += take().text;
      constant->constant = Value::string(std::move(joined));
      return constant;
    }
    case TokenKind::integer:
      constant->constant = Value::integer(take().integer);
      return constant;
    case TokenKind::real:
      constant->constant = Value::real(take().real);
      return constant;
    default:
      break;
  }
  if (current().is_sign("[")) return parse_list();
  if (current().is_sign("{")) return parse_dict();
  if (!skip_sign("(")) fail_here("expected an expression, found ", described(current()));
  auto inner = parse_tuple(true, nullptr, true);
  expect_sign(")");
  return inner;
}

ExpressionPointer ExpressionParser::parse_list() {
  auto list = make(ExpressionKind::list, take().line);
  while (!skip_sign("]")) {
    if (!list->parts.empty()) {
      expect_sign(",");
      if (skip_sign("]")) break;
    }
    add_part(*list, parse_expression());
  }
  return list;
}

ExpressionPointer ExpressionParser::parse_dict() {
  auto dict = make(ExpressionKind::dict, take().line);
  while (!skip_sign("}")) {
    if (!dict->parts.empty()) {
      expect_sign(",");
      if (skip_sign("}")) break;
    }
    add_part(*dict, parse_expression());
    expect_sign(":");
    add_part(*dict, parse_expression());
  }
  return dict;
}

}  // namespace ostrakon::texts::jinja
