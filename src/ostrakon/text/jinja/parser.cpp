// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/text/jinja/parser.hpp>

#include <algorithm>
#include <initializer_list>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/text/jinja/builtins.hpp>
#include <ostrakon/text/jinja/expression_parser.hpp>

namespace ostrakon::texts::jinja {
namespace {

class Parser : private ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  Tree parse() {
    tree_.body.statements = parse_until({});
    find_unset_names(tree_);
    return std::move(tree_);
  }

 private:
  /// What surrounds a statement, and decides whether it may stand there.
  struct Surroundings {
    bool in_loop = false;      ///< break and continue may stand here
    bool is_buffered = false;  ///< what is printed here is not written to the end of the text
  };

  /// Parses up to a block that begins with one of `ends`, or to the template's end if there are
  /// none. The name of that block is the next token.
  Statements parse_until(std::initializer_list<const char*> ends) {
    const Nesting nesting(*this);
    Statements statements;
    while (true) {
      if (current().is(TokenKind::end)) {
        if (ends.size() != 0) fail_here("the template ends before '{% ", *(ends.end() - 1), " %}'");
        return statements;
      }
      if (current().is(TokenKind::data)) {
        statements.push_back(make(StatementKind::data));
        statements.back()->text = take().text;
      } else if (current().is(TokenKind::variable_begin)) {
        take();
        statements.push_back(make(StatementKind::print));
        statements.back()->expression = parse_tuple();
        expect(TokenKind::variable_end, "'}}'");
      } else {
        take();  // block_begin
        const auto is_current = [this](const char* name) { return current().is_name(name); };
        if (std::any_of(ends.begin(), ends.end(), is_current)) return statements;
        statements.push_back(parse_statement());
        expect_block_end();
      }
    }
  }

  void expect_block_end() { expect(TokenKind::block_end, "'%}'"); }

  /// Parses what stands between a statement's '%}' and one of `ends`.
  Statements parse_body(std::initializer_list<const char*> ends) {
    skip_sign(":");
    expect_block_end();
    return parse_until(ends);
  }

  /// Parses a body and the name of its end.
  Statements parse_whole_body(const char* end, const Surroundings& inside) {
    const Surroundings outside = surroundings_;
    surroundings_ = inside;
    Statements statements = parse_body({end});
    surroundings_ = outside;
    take();
    return statements;
  }

  std::unique_ptr<Statement> make(StatementKind kind) const {
    auto statement = std::make_unique<Statement>();
    statement->kind = kind;
    statement->line = current().line;
    return statement;
  }

  std::unique_ptr<Statement> parse_statement() {
    if (!current().is(TokenKind::name)) fail_here("a block begins with ", described(current()));
    struct Row {
      const char* name;
      std::unique_ptr<Statement> (Parser::*parse)();
    };
    static constexpr Row rows[] = {
        {"if", &Parser::parse_if},
        {"for", &Parser::parse_for},
        {"set", &Parser::parse_set},
        {"macro", &Parser::parse_macro},
        {"filter", &Parser::parse_filter_block},
        {"with", &Parser::parse_with},
        {"generation", &Parser::parse_generation},
        {"break", &Parser::parse_leave},
        {"continue", &Parser::parse_leave},
    };
    for (const Row& row : rows)
      if (current().is_name(row.name)) return (this->*row.parse)();
    const std::string name = current().text;
    for (const char* known :
         {"block", "extends", "print", "include", "from", "import", "autoescape", "call"})
      if (name == known) fail_here("the block '", name, "' is not implemented");
    fail_here("unexpected block ", shown(name));
  }

  std::unique_ptr<Statement> parse_if() {
    auto statement = make(StatementKind::condition);
    while (true) {
      take();  // if or elif
      auto condition = parse_tuple(false);
      statement->branches.emplace_back(std::move(condition), parse_body({"elif", "else", "endif"}));
      if (current().is_name("elif")) continue;
      if (take().text == "else") {
        statement->branches.emplace_back(nullptr, parse_body({"endif"}));
        take();
      }
      return statement;
    }
  }

  std::unique_ptr<Statement> parse_for() {
    auto statement = make(StatementKind::loop);
    take();
    statement->target = parse_target(false, "in");
    refuse_loop_target(statement->target);
    if (!skip_name("in")) fail_here("expected 'in', found ", described(current()));
    statement->expression = parse_tuple(false, "recursive");
    if (skip_name("if")) statement->condition = parse_expression();
    if (current().is_name("recursive")) fail_here("recursive loops are not implemented");
    const Surroundings outside = surroundings_;
    surroundings_.in_loop = true;
    statement->body.statements = parse_body({"else", "endfor"});
    surroundings_ = outside;
    if (take().text == "else") {
      statement->otherwise.statements = parse_body({"endfor"});
      take();
    }
    return statement;
  }

  void refuse_loop_target(const Target& target) const {
    if (target.name >= 0 && tree_.names[static_cast<std::size_t>(target.name)] == "loop")
      fail_here("the variable 'loop' can't be set");
    for (const Target& part : target.parts) refuse_loop_target(part);
  }

  std::unique_ptr<Statement> parse_set() {
    auto statement = make(StatementKind::set);
    take();
    statement->target = parse_target(true, nullptr);
    if (surroundings_.in_loop) refuse_loop_target(statement->target);
    if (skip_sign("=")) {
      statement->expression = parse_tuple();
      return statement;
    }
    statement->kind = StatementKind::set_block;
    statement->expression = parse_filters(nullptr);
    statement->body.statements = parse_whole_body("endset", {surroundings_.in_loop, true});
    return statement;
  }

  std::unique_ptr<Statement> parse_macro() {
    auto statement = make(StatementKind::macro);
    take();
    statement->name = tree_.name(take_name("the name of a macro"));
    if (!skip_sign("(")) fail_here("expected '(', found ", described(current()));
    while (!skip_sign(")")) {
      if (!statement->parameters.empty()) {
        if (!skip_sign(",")) fail_here("expected ',' or ')', found ", described(current()));
      }
      const std::string name = take_name("the name of a parameter");
      ExpressionPointer value;
      if (skip_sign("=")) {
        value = parse_expression();
      } else if (!statement->parameters.empty() && statement->parameters.back().second) {
        fail_here("the parameter '", name, "' has no default, but the one before it has");
      }
      for (const auto& other : statement->parameters)
        if (tree_.names[static_cast<std::size_t>(other.first)] == name)
          fail_here("two parameters have the name '", name, "'");
      statement->parameters.emplace_back(tree_.name(name), std::move(value));
    }
    statement->body.statements = parse_whole_body("endmacro", {false, true});
    return statement;
  }

  std::unique_ptr<Statement> parse_filter_block() {
    auto statement = make(StatementKind::filter);
    take();
    statement->expression = parse_filters(parse_filter(nullptr));
    statement->body.statements = parse_whole_body("endfilter", {surroundings_.in_loop, true});
    return statement;
  }

  std::unique_ptr<Statement> parse_with() {
    auto statement = make(StatementKind::with);
    take();
    while (!current().is(TokenKind::block_end)) {
      if (!statement->assignments.empty() && !skip_sign(","))
        fail_here("expected ',' or '%}', found ", described(current()));
      Target target = parse_target(false, nullptr);
      if (!skip_sign("=")) fail_here("expected '=', found ", described(current()));
      statement->assignments.emplace_back(std::move(target), parse_expression());
    }
    statement->body.statements = parse_whole_body("endwith", surroundings_);
    return statement;
  }

  std::unique_ptr<Statement> parse_generation() {
    auto statement = make(StatementKind::generation);
    take();
    if (surroundings_.is_buffered) tree_.kept_generation = statement->line;
    tree_.has_generation = true;
    statement->body.statements = parse_whole_body("endgeneration", {false, true});
    return statement;
  }

  std::unique_ptr<Statement> parse_leave() {
    auto statement = make(current().is_name("break") ? StatementKind::leave : StatementKind::next);
    if (!surroundings_.in_loop) fail_here("'", current().text, "' outside of a loop");
    take();
    return statement;
  }

  Surroundings surroundings_;
};

}  // namespace

Name Tree::name(const std::string& name) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found != names.end()) return static_cast<Name>(found - names.begin());
  names.push_back(name);
  return static_cast<Name>(names.size() - 1);
}

Tree parse(const std::string& source, const std::string& file) {
  return Parser(read_tokens(source, file), file).parse();
}

}  // namespace ostrakon::texts::jinja
