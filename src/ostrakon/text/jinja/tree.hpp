// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <ostrakon/text/jinja/value.hpp>
#include <string>
#include <utility>
#include <vector>

namespace ostrakon::texts::jinja {

/// A name of a variable, by its index in Tree::names.
using Name = int;

struct Filter;
struct Test;

enum class ExpressionKind {
  constant,
  name,
  list,
  tuple,
  dict,         ///< parts: key, value, key, value, ...
  attribute,    ///< parts: object; text
  item,         ///< parts: object, key
  slice,        ///< parts: object, begin, end, step, each of which may be null
  call,         ///< parts: callee, arguments ...
  filter,       ///< parts: value (null in a block of a filter), arguments ...
  test,         ///< parts: value, arguments ...
  conditional,  ///< parts: value, condition, other value (may be null)
  either,       ///< or
  both,         ///< and
  negation,     ///< not
  comparison,   ///< parts: a, b, c ... between which stand `operators`
  arithmetic,   ///< parts: a, b; text: the operator
  sign,         ///< parts: a; text: the operator
  concatenation
};

struct Expression {
  ExpressionKind kind;
  int line;
  int depth = 1;  ///< of expressions inside of each other
  Value constant;
  Name name = -1;
  std::string text;
  std::vector<std::unique_ptr<Expression>> parts;
  std::vector<std::pair<std::string, std::unique_ptr<Expression>>> named;  ///< arguments
  std::vector<std::string> operators;
  const Filter* filter = nullptr;
  const Test* test = nullptr;
};
using ExpressionPointer = std::unique_ptr<Expression>;

/// What a statement sets: a name, a namespace's attribute (text), or parts of a sequence.
struct Target {
  int line = 0;
  Name name = -1;
  std::string attribute;
  std::vector<Target> parts;  ///< not empty: of a sequence
};

struct Statement;
using Statements = std::vector<std::unique_ptr<Statement>>;

enum class StatementKind {
  data,        ///< text
  print,       ///< expression
  condition,   ///< branches
  loop,        ///< target, expression, condition, body, otherwise
  set,         ///< target, expression
  set_block,   ///< target, expression (a filter, may be null), body
  macro,       ///< name, parameters, body
  filter,      ///< expression, body
  with,        ///< assignments, body
  generation,  ///< body
  leave,       ///< break
  next         ///< continue
};

/// A scope of names. Those in `unset` exist in it from its begin, without a value, and hide what
/// has their name outside of it.
struct Body {
  Statements statements;
  std::vector<Name> unset;
};

struct Statement {
  StatementKind kind;
  int line;
  std::string text;
  ExpressionPointer expression, condition;
  std::vector<std::pair<ExpressionPointer, Statements>> branches;  ///< without a condition: else
  Target target;
  Body body, otherwise;
  Name name = -1;
  std::vector<std::pair<Name, ExpressionPointer>> parameters;  ///< with their defaults, or null
  std::vector<std::pair<Target, ExpressionPointer>> assignments;
};

struct Tree {
  std::vector<std::string> names;
  Body body;
  bool has_generation = false;
  /// The line of a block `generation` inside of a macro or of another block that keeps its text:
  /// where that text stands in the whole is not known. 0: there is none.
  int kept_generation = 0;
  /// Returns the index of a name, which it adds if it is new.
  Name name(const std::string& name);
};

/// Fills in what of each scope is unset (see Body), as Jinja finds it when it compiles.
void find_unset_names(Tree& tree);

}  // namespace ostrakon::texts::jinja
