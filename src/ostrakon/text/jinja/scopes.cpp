// SPDX-License-Identifier: Apache-2.0
// Which names a scope has before its first statement runs. Jinja decides when it compiles a
// template (jinja2/idtracking.py): a name that a scope sets, before it reads it, and that no scope
// around it knows is the scope's own from its begin, and without a value until it is set; it hides
// a variable of the same name that the template was given. One that is set in a branch of an `if`
// alone is looked up elsewhere when the branch is not taken.
#include <map>
#include <ostrakon/text/jinja/tree.hpp>
#include <set>

namespace ostrakon::texts::jinja {
namespace {

/// How a scope finds a name that it has not set yet.
enum class Begin { parameter, elsewhere, unset };

struct Symbols {
  const Symbols* around = nullptr;
  std::map<Name, Begin> names;
  std::set<Name> set;

  bool knows(Name name) const {
    for (const Symbols* symbols = this; symbols != nullptr; symbols = symbols->around)
      if (symbols->names.count(name) > 0) return true;
    return false;
  }
  void read(Name name) {
    if (!knows(name)) names[name] = Begin::elsewhere;
  }
  void store(Name name) {
    set.insert(name);
    if (names.count(name) == 0) names[name] = knows(name) ? Begin::elsewhere : Begin::unset;
  }
  void declare(Name name) {
    set.insert(name);
    names[name] = Begin::parameter;
  }
  std::vector<Name> unset() const {
    std::vector<Name> result;
    for (const auto& [name, begin] : names)
      if (begin == Begin::unset) result.push_back(name);
    return result;
  }
};

void read(const Expression* expression, Symbols& symbols) {
  if (expression == nullptr) return;
  if (expression->kind == ExpressionKind::name) symbols.read(expression->name);
  for (const auto& part : expression->parts) read(part.get(), symbols);
  for (const auto& argument : expression->named) read(argument.second.get(), symbols);
}

void store(const Target& target, Symbols& symbols) {
  if (target.name >= 0 && target.attribute.empty()) symbols.store(target.name);
  if (target.name >= 0 && !target.attribute.empty()) symbols.read(target.name);
  for (const Target& part : target.parts) store(part, symbols);
}

void declare(const Target& target, Symbols& symbols) {
  if (target.name >= 0) symbols.declare(target.name);
  for (const Target& part : target.parts) declare(part, symbols);
}

void look_at(const Statements& statements, Symbols& symbols);

void look_at_branches(const Statement& statement, Symbols& symbols) {
  read(statement.branches.front().first.get(), symbols);
  // Jinja looks at the first branch, at all that begin with `elif`, and at `else`, each from here.
  Symbols first = symbols, middle = symbols, last = symbols;
  for (std::size_t i = 0; i < statement.branches.size(); ++i) {
    const auto& [condition, statements] = statement.branches[i];
    if (i == 0) {
      look_at(statements, first);
    } else if (condition) {
      // A branch of `elif` is an `if` of its own.
      read(condition.get(), middle);
      Symbols inside = middle;
      look_at(statements, inside);
      const std::set<Name> before = middle.set;
      middle.names = inside.names;
      middle.set = inside.set;
      for (const Name name : inside.set)
        if (before.count(name) == 0) middle.names[name] = Begin::elsewhere;
    } else {
      look_at(statements, last);
    }
  }
  const std::set<Name> before = symbols.set;
  for (const Symbols* branch : {&first, &middle, &last}) {
    for (const auto& [name, begin] : branch->names) symbols.names[name] = begin;
    symbols.set.insert(branch->set.begin(), branch->set.end());
  }
  for (const Name name : symbols.set)
    if (before.count(name) == 0) symbols.names[name] = Begin::elsewhere;
}

void look_at(const Statements& statements, Symbols& symbols) {
  for (const auto& statement : statements) {
    switch (statement->kind) {
      case StatementKind::condition:
        look_at_branches(*statement, symbols);
        break;
      case StatementKind::set_block:
        store(statement->target, symbols);
        break;
      case StatementKind::macro:
        symbols.store(statement->name);
        break;
      case StatementKind::with:
        for (const auto& assignment : statement->assignments)
          read(assignment.second.get(), symbols);
        break;
      case StatementKind::set:
        read(statement->expression.get(), symbols);
        store(statement->target, symbols);
        break;
      default:  // the target of a loop is a name of its body
        read(statement->expression.get(), symbols);
        break;
    }
  }
}

void find_in(Statements& statements, const Symbols& symbols);

void find_in(Body& body, Symbols symbols) {
  look_at(body.statements, symbols);
  body.unset = symbols.unset();
  find_in(body.statements, symbols);
}

void find_in(Statements& statements, const Symbols& symbols) {
  for (auto& pointer : statements) {
    Statement& statement = *pointer;
    for (auto& branch : statement.branches) find_in(branch.second, symbols);
    Symbols inside;
    inside.around = &symbols;
    switch (statement.kind) {
      case StatementKind::loop:
        find_in(statement.otherwise, inside);
        declare(statement.target, inside);
        break;
      case StatementKind::macro:
        for (const auto& parameter : statement.parameters) inside.declare(parameter.first);
        for (const auto& parameter : statement.parameters) read(parameter.second.get(), inside);
        break;
      case StatementKind::with:
        for (const auto& assignment : statement.assignments) declare(assignment.first, inside);
        break;
      case StatementKind::set_block:
      case StatementKind::filter:
      case StatementKind::generation:
        break;
      default:
        continue;
    }
    find_in(statement.body, std::move(inside));
  }
}

}  // namespace

void find_unset_names(Tree& tree) { find_in(tree.body, Symbols()); }

}  // namespace ostrakon::texts::jinja
