// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/text/jinja_evaluate.hpp>

#include <algorithm>
#include <optional>
#include <ostrakon/base/error.hpp>
#include <ostrakon/text/jinja_builtins.hpp>
#include <ostrakon/text/jinja_text.hpp>

namespace ostrakon::texts::jinja {
namespace {

/// Evaluations inside of each other, macros included, so that none overflows the stack.
constexpr int deepest_evaluation = 800;

struct Scope {
  const Scope* around;
  std::vector<std::pair<Name, Value>> values;

  const Value* find(Name name) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->around)
      for (const auto& entry : scope->values)
        if (entry.first == name) return &entry.second;
    return nullptr;
  }
  void set(Name name, Value value) {
    for (auto& entry : values) {
      if (entry.first != name) continue;
      entry.second = std::move(value);
      return;
    }
    values.emplace_back(name, std::move(value));
  }
};

/// How a statement ends: break and continue end those around it, up to a loop.
enum class Flow { goes_on, leaves_loop, next_round };

class Renderer;

/// A macro lives as long as the scope in which it was defined: values that outlive a scope can't
/// hold it (jinja_value.cpp).
struct Macro : Callable {
  Renderer& renderer;
  const Statement& definition;
  const Scope& scope;
  Macro(Renderer& r, const Statement& d, const Scope& s) : renderer(r), definition(d), scope(s) {}
  Value call(Context& context, const Arguments& arguments) const override;
};

struct Method : Callable {
  Value object;
  const Function& function;
  Method(Value o, const Function& f) : object(std::move(o)), function(f) {}
  Value call(Context& context, const Arguments& arguments) const override {
    Arguments all = arguments;
    all.positional.insert(all.positional.begin(), object);
    return jinja::call(context, function, all);
  }
};

class Renderer : public Context {
 public:
  Renderer(const Tree& tree, const Value& variables) : tree_(tree), variables_(variables) {}

  Rendered run(const std::string& file) {
    try {
      Scope root{nullptr, {}};
      run_body(tree_.body, root, rendered_.text);
    } catch (const Problem& problem) {
      throw Error(ostrakon::text(file, ":", line_, ": ", problem.what()));
    }
    return std::move(rendered_);
  }

  void spend(std::size_t work) override {
    work_ += work;
    if (work_ > most_work) fail("the template takes too long");
  }

  Value call_macro(const Statement& macro, const Scope& around, const Arguments& arguments) {
    Scope scope{&around, {}};
    bind(macro, arguments, scope);
    std::string out;
    run_body(macro.body, scope, out);
    return text_value(std::move(out));
  }

 private:
  /// Counts evaluations inside of each other.
  struct Depth {
    explicit Depth(Renderer& r) : renderer(r) {
      if (++renderer.depth_ > deepest_evaluation) {
        --renderer.depth_;
        fail("nested deeper than ", deepest_evaluation, " levels; does a macro call itself?");
      }
    }
    ~Depth() { --renderer.depth_; }
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;
    Renderer& renderer;
  };

  void begin(int line) {
    line_ = line;
    spend(1);
  }

  Value text_value(std::string text) {
    spend(text.size() / 32);
    return Value::string(std::move(text));
  }

  void print(std::string_view text, std::string& out) {
    spend(text.size() / 32);
    if (out.size() + text.size() > longest_text)
      fail("the text is longer than ", longest_text, " bytes");
    out += text;
  }

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

  void print_value(const Value& value, std::string& out) {
    if (value.is(Kind::string)) {
      print(value.string(), out);
    } else {
      spend(weight_of(value));
      print(str(value), out);
    }
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

  // Expressions.

  const std::string& name_of(Name name) const {
    return tree_.names[static_cast<std::size_t>(name)];
  }

  Value undefined(Name name) const {
    return Value::undefined("'" + name_of(name) + "' is undefined");
  }

  Value variable(Name name, const Scope& scope) const {
    if (const Value* value = scope.find(name)) return *value;
    if (const Value* value = variables_.dict().find(name_of(name))) return *value;
    if (const Value* value = find_global(name_of(name))) return *value;
    return undefined(name);
  }

  Value evaluate(const Expression& expression, const Scope& scope) {
    const Depth depth(*this);
    begin(expression.line);
    switch (expression.kind) {
      case ExpressionKind::constant:
        return expression.constant;
      case ExpressionKind::name:
        return variable(expression.name, scope);
      case ExpressionKind::list:
        return Value::list(evaluate_parts(expression, 0, scope));
      case ExpressionKind::tuple:
        return Value::tuple(evaluate_parts(expression, 0, scope));
      case ExpressionKind::dict:
        return evaluate_dict(expression, scope);
      case ExpressionKind::attribute:
        return find_attribute(evaluate(*expression.parts[0], scope), expression);
      case ExpressionKind::item:
        return evaluate_item(expression, scope);
      case ExpressionKind::slice:
        return evaluate_slice(expression, scope);
      case ExpressionKind::call:
        return evaluate_call(expression, scope);
      case ExpressionKind::filter:
      case ExpressionKind::test:
        return evaluate_filter(expression, evaluate(*expression.parts[0], scope), scope);
      case ExpressionKind::conditional:
        if (truth(evaluate(*expression.parts[1], scope)))
          return evaluate(*expression.parts[0], scope);
        if (expression.parts[2]) return evaluate(*expression.parts[2], scope);
        return Value::undefined("an 'if' without 'else' has no value");
      case ExpressionKind::either: {
        Value value = evaluate(*expression.parts[0], scope);
        return truth(value) ? value : evaluate(*expression.parts[1], scope);
      }
      case ExpressionKind::both: {
        Value value = evaluate(*expression.parts[0], scope);
        return truth(value) ? evaluate(*expression.parts[1], scope) : value;
      }
      case ExpressionKind::negation:
        return Value::boolean(!truth(evaluate(*expression.parts[0], scope)));
      case ExpressionKind::comparison:
        return evaluate_comparison(expression, scope);
      case ExpressionKind::arithmetic: {
        const Value a = evaluate(*expression.parts[0], scope);
        const Value b = evaluate(*expression.parts[1], scope);
        return counted(arithmetic(expression.text, a, b));
      }
      case ExpressionKind::sign: {
        const Value value = evaluate(*expression.parts[0], scope);
        return expression.text == "-" ? negative(value) : arithmetic("+", Value::integer(0), value);
      }
      case ExpressionKind::concatenation: {
        std::string joined;
        for (const Value& part : evaluate_parts(expression, 0, scope)) print_value(part, joined);
        return Value::string(std::move(joined));
      }
    }
    return {};
  }

  /// Counts what it took to make a value.
  Value counted(Value value) {
    spend(weight_of(value));
    return value;
  }

  Values evaluate_parts(const Expression& expression, std::size_t first, const Scope& scope) {
    Values values;
    for (std::size_t i = first; i < expression.parts.size(); ++i)
      values.push_back(evaluate(*expression.parts[i], scope));
    return values;
  }

  Value evaluate_dict(const Expression& expression, const Scope& scope) {
    std::vector<std::pair<Value, Value>> entries;
    for (std::size_t i = 0; i < expression.parts.size(); i += 2) {
      const Value key = evaluate(*expression.parts[i], scope);
      set_entry(entries, key, evaluate(*expression.parts[i + 1], scope));
    }
    return Value::dict(std::move(entries));
  }

  Value find_attribute(const Value& object, const Expression& expression) {
    if (object.is(Kind::dict)) spend(object.dict().entries.size() / 16);
    if (const Function* method = find_method(object, expression.text))
      return Value::callable(std::make_shared<Method>(object, *method));
    return attribute(object, expression.text);
  }

  Value evaluate_item(const Expression& expression, const Scope& scope) {
    const Value object = evaluate(*expression.parts[0], scope);
    const Value key = evaluate(*expression.parts[1], scope);
    if (object.is(Kind::dict)) spend(object.dict().entries.size() / 16);
    if (object.is(Kind::string)) spend(weight_of(object));
    Value found = item(object, key);
    if (!found.is(Kind::undefined) || !key.is(Kind::string)) return found;
    if (const Function* method = find_method(object, key.string()))
      return Value::callable(std::make_shared<Method>(object, *method));
    return found;
  }

  Value evaluate_slice(const Expression& expression, const Scope& scope) {
    const auto part = [&](std::size_t i) {
      return expression.parts[i] ? evaluate(*expression.parts[i], scope) : Value::none();
    };
    const Value object = part(0), first = part(1), last = part(2), step = part(3);
    return counted(slice(object, first, last, step));
  }

  Arguments evaluate_arguments(const Expression& expression, const Scope& scope) {
    Arguments arguments;
    arguments.positional = evaluate_parts(expression, 1, scope);
    for (const auto& [name, value] : expression.named)
      arguments.named.emplace_back(name, evaluate(*value, scope));
    return arguments;
  }

  Value evaluate_call(const Expression& expression, const Scope& scope) {
    const Value callee = evaluate(*expression.parts[0], scope);
    const Arguments arguments = evaluate_arguments(expression, scope);
    line_ = expression.line;
    if (callee.is(Kind::undefined)) fail(callee.why());
    if (!callee.is(Kind::callable)) fail("a ", type_name(callee), " is called");
    Value result = counted(callee.callable().call(*this, arguments));
    line_ = expression.line;
    return result;
  }

  Value evaluate_filter(const Expression& expression, const Value& value, const Scope& scope) {
    Arguments arguments = evaluate_arguments(expression, scope);
    arguments.positional.insert(arguments.positional.begin(), value);
    line_ = expression.line;
    const Function& function = expression.filter != nullptr
                                   ? static_cast<const Function&>(*expression.filter)
                                   : *expression.test;
    return counted(call(*this, function, arguments));
  }

  /// Filters of a block, the innermost of which has no value of its own.
  Value evaluate_filters(const Expression& expression, const Value& value, const Scope& scope) {
    const Depth depth(*this);
    const auto& inner = expression.parts[0];
    return evaluate_filter(expression, inner ? evaluate_filters(*inner, value, scope) : value,
                           scope);
  }

  Value evaluate_comparison(const Expression& expression, const Scope& scope) {
    Value left = evaluate(*expression.parts[0], scope);
    for (std::size_t i = 0; i < expression.operators.size(); ++i) {
      Value right = evaluate(*expression.parts[i + 1], scope);
      if (!compare(expression.operators[i], left, right)) return Value::boolean(false);
      left = std::move(right);
    }
    return Value::boolean(true);
  }

  bool compare(const std::string& operation, const Value& a, const Value& b) {
    spend(weight_of(a) + weight_of(b));
    if (operation == "==") return equal(a, b);
    if (operation == "!=") return !equal(a, b);
    if (operation == "in" || operation == "not in") return contains(b, a) == (operation == "in");
    if (operation == "<") return less(a, b);
    if (operation == ">") return less(b, a);
    // As Python's numbers that are not a number: neither order holds.
    return operation == "<=" ? less(a, b) || equal(a, b) : less(b, a) || equal(a, b);
  }

  const Tree& tree_;
  const Value& variables_;
  const Name loop_name_ = find_loop_name();
  Rendered rendered_;
  std::size_t work_ = 0;
  int depth_ = 0;
  int line_ = 1;

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
