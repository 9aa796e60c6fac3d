// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/text/jinja/evaluator.hpp>

namespace ostrakon::texts::jinja {
namespace {

constexpr int deepest_evaluation = 800;

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

}  // namespace

Evaluator::Depth::Depth(Evaluator& evaluator) : evaluator_(evaluator) {
  if (evaluator.depth_ >= deepest_evaluation)
    fail("nested deeper than ", deepest_evaluation, " levels; does a macro call itself?");
  ++evaluator.depth_;
}

void Evaluator::spend(std::size_t work) {
  work_ += work;
  if (work_ > most_work) fail("the template takes too long");
}

void Evaluator::begin(int line) {
  line_ = line;
  spend(1);
}

Value Evaluator::text_value(std::string text) {
  spend(text.size() / 32);
  return Value::string(std::move(text));
}

void Evaluator::print(std::string_view text, std::string& out) {
  spend(text.size() / 32);
  if (out.size() + text.size() > longest_text)
    fail("the text is longer than ", longest_text, " bytes");
  out += text;
}

void Evaluator::print_value(const Value& value, std::string& out) {
  if (value.is(Kind::string)) {
    print(value.string(), out);
  } else {
    spend(weight_of(value));
    print(str(value), out);
  }
}

const std::string& Evaluator::name_of(Name name) const {
  return tree_.names[static_cast<std::size_t>(name)];
}

Value Evaluator::undefined(Name name) const {
  return Value::undefined("'" + name_of(name) + "' is undefined");
}

Value Evaluator::variable(Name name, const Scope& scope) const {
  if (const Value* value = scope.find(name)) return *value;
  if (const Value* value = variables_.dict().find(name_of(name))) return *value;
  if (const Value* value = find_global(name_of(name))) return *value;
  return undefined(name);
}

Value Evaluator::evaluate(const Expression& expression, const Scope& scope) {
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

Value Evaluator::counted(Value value) {
  spend(weight_of(value));
  return value;
}

Values Evaluator::evaluate_parts(const Expression& expression, std::size_t first,
                                 const Scope& scope) {
  Values values;
  for (std::size_t i = first; i < expression.parts.size(); ++i)
    values.push_back(evaluate(*expression.parts[i], scope));
  return values;
}

Value Evaluator::evaluate_dict(const Expression& expression, const Scope& scope) {
  std::vector<std::pair<Value, Value>> entries;
  for (std::size_t i = 0; i < expression.parts.size(); i += 2) {
    const Value key = evaluate(*expression.parts[i], scope);
    set_entry(entries, key, evaluate(*expression.parts[i + 1], scope));
  }
  return Value::dict(std::move(entries));
}

Value Evaluator::find_attribute(const Value& object, const Expression& expression) {
  if (object.is(Kind::dict)) spend(object.dict().entries.size() / 16);
  if (const Function* method = find_method(object, expression.text))
    return Value::callable(std::make_shared<Method>(object, *method));
  return attribute(object, expression.text);
}

Value Evaluator::evaluate_item(const Expression& expression, const Scope& scope) {
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

Value Evaluator::evaluate_slice(const Expression& expression, const Scope& scope) {
  const auto part = [&](std::size_t i) {
    return expression.parts[i] ? evaluate(*expression.parts[i], scope) : Value::none();
  };
  const Value object = part(0), first = part(1), last = part(2), step = part(3);
  return counted(slice(object, first, last, step));
}

Arguments Evaluator::evaluate_arguments(const Expression& expression, const Scope& scope) {
  Arguments arguments;
  arguments.positional = evaluate_parts(expression, 1, scope);
  for (const auto& [name, value] : expression.named)
    arguments.named.emplace_back(name, evaluate(*value, scope));
  return arguments;
}

Value Evaluator::evaluate_call(const Expression& expression, const Scope& scope) {
  const Value callee = evaluate(*expression.parts[0], scope);
  const Arguments arguments = evaluate_arguments(expression, scope);
  line_ = expression.line;
  if (callee.is(Kind::undefined)) fail(callee.why());
  if (!callee.is(Kind::callable)) fail("a ", type_name(callee), " is called");
  Value result = counted(callee.callable().call(*this, arguments));
  line_ = expression.line;
  return result;
}

Value Evaluator::evaluate_filter(const Expression& expression, const Value& value,
                                 const Scope& scope) {
  Arguments arguments = evaluate_arguments(expression, scope);
  arguments.positional.insert(arguments.positional.begin(), value);
  line_ = expression.line;
  const Function& function = expression.filter != nullptr
                                 ? static_cast<const Function&>(*expression.filter)
                                 : *expression.test;
  return counted(call(*this, function, arguments));
}

Value Evaluator::evaluate_filters(const Expression& expression, const Value& value,
                                  const Scope& scope) {
  const Depth depth(*this);
  const auto& inner = expression.parts[0];
  return evaluate_filter(expression, inner ? evaluate_filters(*inner, value, scope) : value, scope);
}

Value Evaluator::evaluate_comparison(const Expression& expression, const Scope& scope) {
  Value left = evaluate(*expression.parts[0], scope);
  for (std::size_t i = 0; i < expression.operators.size(); ++i) {
    Value right = evaluate(*expression.parts[i + 1], scope);
    if (!compare(expression.operators[i], left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

bool Evaluator::compare(const std::string& operation, const Value& a, const Value& b) {
  spend(weight_of(a) + weight_of(b));
  if (operation == "==") return equal(a, b);
  if (operation == "!=") return !equal(a, b);
  if (operation == "in" || operation == "not in") return contains(b, a) == (operation == "in");
  if (operation == "<") return less(a, b);
  if (operation == ">") return less(b, a);
  // NaN is neither less than a number nor greater, as in Python.
  return operation == "<=" ? less(a, b) || equal(a, b) : less(b, a) || equal(a, b);
}

}  // namespace ostrakon::texts::jinja
