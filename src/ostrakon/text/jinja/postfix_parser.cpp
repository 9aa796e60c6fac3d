// SPDX-License-Identifier: Apache-2.0
// What follows a value in an expression: items, calls, filters, tests; and what is set.
#include <algorithm>
#include <ostrakon/text/jinja/builtins.hpp>
#include <ostrakon/text/jinja/expression_parser.hpp>

namespace ostrakon::texts::jinja {

ExpressionPointer ExpressionParser::parse_postfix(ExpressionPointer value) {
  while (true) {
    if (current().is_sign("[")) {
      value = parse_item(std::move(value));
    } else if (current().is_sign("(")) {
      auto call = make(ExpressionKind::call, current().line);
      add_part(*call, std::move(value));
      parse_arguments(*call);
      value = std::move(call);
    } else if (current().is_sign(".")) {
      const int line = take().line;
      const bool is_name = current().is(TokenKind::name);
      if (!is_name && !current().is(TokenKind::integer))
        fail_here("expected a name or a number after '.', found ", described(current()));
      auto part = make(is_name ? ExpressionKind::attribute : ExpressionKind::item, line);
      add_part(*part, std::move(value));
      if (is_name) {
        part->text = take().text;
      } else {
        auto index = make(ExpressionKind::constant, line);
        index->constant = Value::integer(take().integer);
        add_part(*part, std::move(index));
      }
      value = std::move(part);
    } else {
      return value;
    }
  }
}

ExpressionPointer ExpressionParser::parse_item(ExpressionPointer value) {
  auto item = make(ExpressionKind::item, take().line);
  add_part(*item, std::move(value));
  const auto ends = [this] {
    return current().is_sign(":") || current().is_sign("]") || current().is_sign(",");
  };
  add_part(*item, ends() ? nullptr : parse_expression());
  while (item->parts.size() < 4 && skip_sign(":")) {
    item->kind = ExpressionKind::slice;
    add_part(*item, ends() ? nullptr : parse_expression());
  }
  if (current().is_sign(",")) fail_here("an index of several parts is not implemented");
  if (item->kind == ExpressionKind::item && !item->parts[1])
    fail_here("expected an index, found ", described(current()));
  while (item->kind == ExpressionKind::slice && item->parts.size() < 4) add_part(*item, nullptr);
  expect_sign("]");
  return item;
}

ExpressionPointer ExpressionParser::parse_filters(ExpressionPointer value) {
  while (skip_sign("|")) value = parse_filter(std::move(value));
  return value;
}

ExpressionPointer ExpressionParser::parse_filter(ExpressionPointer value) {
  auto filter = make(ExpressionKind::filter, current().line);
  filter->text = take_name("the name of a filter");
  filter->filter = find_filter(filter->text);
  if (filter->filter == nullptr || current().is_sign("."))
    fail_here("the filter '", filter->text, "' is not implemented");
  add_part(*filter, std::move(value));
  if (current().is_sign("(")) parse_arguments(*filter);
  return filter;
}

ExpressionPointer ExpressionParser::parse_test(ExpressionPointer value) {
  auto test = make(ExpressionKind::test, take().line);
  const bool negated = skip_name("not");
  test->text = take_name("the name of a test");
  test->test = find_test(test->text);
  if (test->test == nullptr || current().is_sign("."))
    fail_here("the test '", test->text, "' is not implemented");
  add_part(*test, std::move(value));
  const bool begins_value =
      (current().is(TokenKind::name) && !is_any(current().text, {"else", "or", "and"})) ||
      current().is(TokenKind::string) || current().is(TokenKind::integer) ||
      current().is(TokenKind::real) || current().is_sign("[") || current().is_sign("{");
  if (current().is_sign("(")) {
    parse_arguments(*test);
  } else if (begins_value) {
    if (current().is_name("is")) fail_here("two tests follow each other");
    add_part(*test, parse_postfix(parse_primary()));
  }
  if (!negated) return test;
  auto negation = make(ExpressionKind::negation, test->line);
  add_part(*negation, std::move(test));
  return negation;
}

void ExpressionParser::parse_arguments(Expression& call) {
  expect_sign("(");
  bool first = true;
  while (!skip_sign(")")) {
    if (!first) {
      expect_sign(",");
      if (skip_sign(")")) break;
    }
    first = false;
    if (current().is_sign("*") || current().is_sign("**"))
      fail_here("arguments with '", current().text, "' are not implemented");
    if (current().is(TokenKind::name) && following().is_sign("=")) {
      const std::string name = take().text;
      take();
      for (const auto& other : call.named)
        if (other.first == name) fail_here("the argument '", name, "' is given twice");
      auto value = parse_expression();
      call.depth = std::max(call.depth, value->depth + 1);
      call.named.emplace_back(name, std::move(value));
    } else {
      if (!call.named.empty()) fail_here("an argument without a name follows one with a name");
      add_part(call, parse_expression());
    }
  }
}

Target ExpressionParser::parse_one_target(bool with_attributes) {
  const Nesting nesting(*this);
  if (skip_sign("(")) {
    Target target = parse_target(with_attributes, nullptr);
    expect_sign(")");
    return target;
  }
  Target target;
  target.line = current().line;
  const std::string name = take_name("a name to set");
  if (is_any(name, {"true", "True", "false", "False", "none", "None"}))
    fail_here("'", name, "' can't be set");
  target.name = tree_.name(name);
  if (with_attributes && skip_sign(".")) target.attribute = take_name("the name of an attribute");
  return target;
}

Target ExpressionParser::parse_target(bool with_attributes, const char* end) {
  Target first = parse_one_target(with_attributes);
  if (!current().is_sign(",")) return first;
  Target target;
  target.line = first.line;
  target.parts.push_back(std::move(first));
  while (skip_sign(",")) {
    if ((end != nullptr && current().is_name(end)) || current().is_sign(")") ||
        current().is(TokenKind::block_end))
      break;
    target.parts.push_back(parse_one_target(with_attributes));
  }
  return target;
}

}  // namespace ostrakon::texts::jinja
