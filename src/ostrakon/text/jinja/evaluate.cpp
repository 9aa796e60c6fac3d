// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/text/jinja/evaluate.hpp>

#include <algorithm>
#include <optional>
#include <ostrakon/base/error.hpp>
#include <ostrakon/text/jinja/evaluator.hpp>

namespace ostrakon::texts::jinja {
namespace {

/// How a statement ends: break and continue end those around it, up to a loop.
enum class Flow { goes_on, leaves_loop, next_round };

class Renderer;

/// A macro lives as long as the scope in which it was defined: values that outlive a scope can't
/// hold it (value.cpp).
struct Macro : Callable {
  Renderer& renderer;
  const Statement& definition;
  const Scope& scope;
  Macro(Renderer& r, const Statement& d, const Scope& s) : renderer(r), definition(d), scope(s) {}
  Value call(Context& context, const Arguments& arguments) const override;
};

class Renderer : public Evaluator {
 public:
  using Evaluator::Evaluator;

  Rendered run(const std::string& file) {
    try {
      Scope root{nullptr, {}};
      run_body(tree_.body, root, rendered_.text);
    } catch (const Problem& problem) {
      throw Error(ostrakon::text(file, ":", line_, ": ", problem.what()));
    }
    return std::move(rendered_);
  }

  Value call_macro(const Statement& macro, const Scope& around, const Arguments& arguments) {
    Scope scope{&around, {}};
    bind(macro, arguments, scope);
    std::string out;
    run_body(macro.body, scope, out);
    return text_value(std::move(out));
  }

 private:
  // Statements.

  /// Runs a body in a scope that has been made for it.
  Flow run_body(const Body& body, Scope& scope, std::string& out) {
    for (const Name name : body.unset) {
      const bool is_set = std::any_of(scope.values.begin(), scope.values.end(),
                                      [name](const auto& entry) { return entry.first == name; });
      if (!is_set) scope.set(name, undefined(name));
    }
    return run_all(body.statements, scope, out);
  }

  Flow run_all(const Statements& statements, Scope& scope, std::string& out) {
    const Depth depth(*this);
    for (const auto& statement : statements) {
      const Flow flow = run_statement(*statement, scope, out);
      if (flow != Flow::goes_on) return flow;
    }
    return Flow::goes_on;
  }

  Flow run_statement(const Statement& statement, Scope& scope, std::string& out) {
    begin(statement.line);
    switch (statement.kind) {
      case StatementKind::data:
        print(statement.text, out);
        return Flow::goes_on;
      case StatementKind::print:
        print_value(evaluate(*statement.expression, scope), out);
        return Flow::goes_on;
      case StatementKind::condition:
        for (const auto& [condition, statements] : statement.branches)
          if (!condition || truth(evaluate(*condition, scope)))
            return run_all(statements, scope, out);
        return Flow::goes_on;
      case StatementKind::loop:
        return run_loop(statement, scope, out);
      case StatementKind::set:
        assign(statement.target, evaluate(*statement.expression, scope), scope);
        return Flow::goes_on;
      case StatementKind::set_block:
      case StatementKind::filter:
        return run_captured(statement, scope, out);
      case StatementKind::macro:
        scope.set(statement.name,
                  Value::callable(std::make_shared<Macro>(*this, statement, scope)));
        return Flow::goes_on;
      case StatementKind::with:
        return run_with(statement, scope, out);
      case StatementKind::generation: {
        Scope inside{&scope, {}};
        const std::size_t first = out.size();
        run_body(statement.body, inside, out);
        rendered_.generated.emplace_back(first, out.size());
        return Flow::goes_on;
      }
      case StatementKind::leave:
        return Flow::leaves_loop;
      case StatementKind::next:
        return Flow::next_round;
    }
    return Flow::goes_on;
  }

  Flow run_captured(const Statement& statement, Scope& scope, std::string& out) {
    Scope inside{&scope, {}};
    std::string captured;
    const Flow flow = run_body(statement.body, inside, captured);
    if (flow != Flow::goes_on) return flow;
    Value value = text_value(std::move(captured));
    if (statement.expression) value = evaluate_filters(*statement.expression, value, inside);
    if (statement.kind == StatementKind::filter) {
      print_value(value, out);
    } else {
      assign(statement.target, value, scope);
    }
    return Flow::goes_on;
  }

  Flow run_with(const Statement& statement, Scope& scope, std::string& out) {
    Scope inside{&scope, {}};
    for (const auto& [target, expression] : statement.assignments)
      assign(target, evaluate(*expression, scope), inside);
    return run_body(statement.body, inside, out);
  }

  Values loop_values(const Statement& statement, const Value& iterable, Scope& scope) {
    Values values = elements(iterable);
    spend(values.size());
    if (!statement.condition) return values;
    Values chosen;
    Scope inside{&scope, {}};
    // In the condition, `loop` is not that of this loop, which has not begun.
    for (Value& value : values) {
      inside.values.clear();
      assign(statement.target, value, inside);
      if (truth(evaluate(*statement.condition, inside))) chosen.push_back(std::move(value));
    }
    return chosen;
  }

  Flow run_loop(const Statement& statement, Scope& scope, std::string& out) {
    const Value iterable = evaluate(*statement.expression, scope);
    const Values values = loop_values(statement, iterable, scope);
    Loop loop;
    loop.values = &values;
    const Name loop_name = loop_name_;
    bool completed = false;  // as Jinja: `else` runs, too, if each round ended by continue
    for (const Value& value : values) {
      Scope inside{&scope, {}};
      if (loop_name >= 0) inside.set(loop_name, Value::loop(loop));
      assign(statement.target, value, inside);
      const Flow flow = run_body(statement.body, inside, out);
      if (flow == Flow::leaves_loop) {
        if (iterable.is(Kind::iterator)) iterable.iterator().broken = true;
        break;
      }
      completed = completed || flow == Flow::goes_on;
      ++loop.index;
    }
    if (completed) return Flow::goes_on;
    Scope inside{&scope, {}};
    return run_body(statement.otherwise, inside, out);
  }

  void assign(const Target& target, const Value& value, Scope& scope) {
    if (!target.parts.empty()) {
      const Values values = elements(value);
      if (values.size() != target.parts.size())
        fail("a value of ", values.size(), " parts is set to ", target.parts.size(), " names");
      for (std::size_t i = 0; i < values.size(); ++i) assign(target.parts[i], values[i], scope);
    } else if (target.attribute.empty()) {
      scope.set(target.name, value);
    } else {
      const Value names = variable(target.name, scope);
      if (!names.is(Kind::names))
        fail("the attribute '", target.attribute, "' of a ", type_name(names),
             " is set; expected a namespace");
      names.names().set(target.attribute, value);
    }
  }

  // Macros.

  void bind(const Statement& macro, const Arguments& arguments, Scope& scope) {
    const std::string& name = name_of(macro.name);
    if (arguments.positional.size() > macro.parameters.size())
      fail("the macro '", name, "' takes ", macro.parameters.size(), " arguments, but ",
           arguments.positional.size(), " are given");
    for (const auto& given : arguments.named) {
      const auto is_given = [&](const auto& parameter) {
        return name_of(parameter.first) == given.first;
      };
      const auto first =
          macro.parameters.begin() + static_cast<std::ptrdiff_t>(arguments.positional.size());
      if (std::none_of(first, macro.parameters.end(), is_given))
        fail("the macro '", name, "' takes no argument '", given.first, "' here");
    }
    for (std::size_t i = 0; i < macro.parameters.size(); ++i) {
      const auto& [parameter, value] = macro.parameters[i];
      std::optional<Value> given;
      if (i < arguments.positional.size()) given = arguments.positional[i];
      for (const auto& named : arguments.named)
        if (named.first == name_of(parameter)) given = named.second;
      // A default may read the parameters before it.
      if (!given && value) given = evaluate(*value, scope);
      if (!given)
        given = Value::undefined(ostrakon::text("the parameter '", name_of(parameter),
                                                "' of the macro '", name, "' was not given"));
      scope.set(parameter, std::move(*given));
    }
  }

  const Name loop_name_ = find_loop_name();
  Rendered rendered_;

  Name find_loop_name() const {
    const auto found = std::find(tree_.names.begin(), tree_.names.end(), "loop");
    return found == tree_.names.end() ? -1 : static_cast<Name>(found - tree_.names.begin());
  }
};

Value Macro::call(Context&, const Arguments& arguments) const {
  return renderer.call_macro(definition, scope, arguments);
}

}  // namespace

Rendered render(const Tree& tree, const Value& variables, const std::string& file) {
  return Renderer(tree, variables).run(file);
}

}  // namespace ostrakon::texts::jinja
