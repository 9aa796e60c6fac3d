// SPDX-License-Identifier: Apache-2.0
#include <ctime>
#include <ostrakon/text/jinja/builtins.hpp>

namespace ostrakon::texts::jinja {
namespace {

/// transformers' sandbox refuses longer ranges, too.
constexpr std::int64_t longest_range = 100'000;

Value make_range(Context&, const Values& arguments) {
  const bool one = arguments[1].is(Kind::absent);
  const std::int64_t begin = one ? 0 : integer_of(arguments[0], "range");
  const std::int64_t end = integer_of(arguments[one ? 0 : 1], "range");
  const std::int64_t step = arguments[2].is(Kind::absent) ? 1 : integer_of(arguments[2], "range");
  if (step == 0) fail("range: the step is 0");
  Values values;
  for (std::int64_t at = begin; step > 0 ? at < end : at > end;) {
    if (static_cast<std::int64_t>(values.size()) == longest_range)
      fail("range: more than ", longest_range, " numbers");
    values.push_back(Value::integer(at));
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  std::string shown = text("range(", begin, ", ", end);
  if (step != 1) shown += text(", ", step);
  return Value::view(std::move(values), shown + ")", true);
}

/// Copies a dict, or makes one of pairs; then sets what was given by name.
std::vector<std::pair<Value, Value>> entries_of(Context& context, const Arguments& arguments,
                                                const char* what) {
  std::vector<std::pair<Value, Value>> entries;
  if (arguments.positional.size() > 1) fail(what, ": more than one argument without a name");
  for (const Value& value : arguments.positional) {
    context.spend(weight_of(value));
    if (value.is(Kind::dict)) {
      entries = value.dict().entries;
      continue;
    }
    if (value.is(Kind::undefined) || value.is(Kind::string) || value.is(Kind::names))
      fail(what, ": expected a dict or a list of pairs, not a ", type_name(value));
    for (const Value& pair : elements(value)) {
      const Values parts = elements(pair);
      if (parts.size() != 2) fail(what, ": an element is no pair");
      context.spend(entries.size());
      set_entry(entries, parts[0], parts[1]);
    }
  }
  for (const auto& [name, value] : arguments.named) set_entry(entries, Value::string(name), value);
  return entries;
}

struct DictFunction : Callable {
  Value call(Context& context, const Arguments& arguments) const override {
    return Value::dict(entries_of(context, arguments, "dict"));
  }
};

struct NamespaceFunction : Callable {
  Value call(Context& context, const Arguments& arguments) const override {
    auto names = std::make_shared<Names>();
    for (const auto& [key, value] : entries_of(context, arguments, "namespace")) {
      if (!key.is(Kind::string)) fail("namespace: a name is a ", type_name(key));
      names->set(key.string(), value);
    }
    return Value::names(std::move(names));
  }
};

struct PlainFunction : Callable {
  Function function;
  explicit PlainFunction(Function f) : function(std::move(f)) {}
  Value call(Context& context, const Arguments& arguments) const override {
    return jinja::call(context, function, arguments);
  }
};

Value raise_exception(Context&, const Values& arguments) {
  fail("the template refuses the chat: ", str(arguments[0]));
}

Value strftime_now(Context&, const Values& arguments) {
  const std::string& format = string_of(arguments[0], "strftime_now");
  for (std::size_t at = format.find('%'); at != std::string::npos; at = format.find('%', at + 2)) {
    std::size_t letter = at + 1;
    if (letter < format.size() && format[letter] == '-') ++letter;
    const char kind = letter < format.size() ? format[letter] : '\0';
    if (std::string_view("aAbBcdHIjmMpSUwWxXyY%eDFT").find(kind) == std::string_view::npos)
      fail("strftime_now: '%", std::string(1, kind), "' is not implemented");
  }
  if (format.empty()) return arguments[0];
  const std::time_t now = std::time(nullptr);
  std::tm local = {};
  localtime_r(&now, &local);
  std::string result(format.size() * 8 + 256, '\0');
  result.resize(std::strftime(result.data(), result.size(), format.c_str(), &local));
  return Value::string(std::move(result));
}

template <class Made, class... Parts>
Value made(Parts&&... parts) {
  return Value::callable(std::make_shared<Made>(std::forward<Parts>(parts)...));
}

}  // namespace

const Value* find_global(std::string_view name) {
  static const std::vector<std::pair<std::string, Value>> globals = {
      {"range", made<PlainFunction>(Function{"range", {"", "", ""}, 1, make_range})},
      {"raise_exception",
       made<PlainFunction>(Function{"raise_exception", {"message"}, 1, raise_exception})},
      {"strftime_now", made<PlainFunction>(Function{"strftime_now", {"format"}, 1, strftime_now})},
      {"dict", made<DictFunction>()},
      {"namespace", made<NamespaceFunction>()},
  };
  for (const auto& global : globals)
    if (global.first == name) return &global.second;
  return nullptr;
}

}  // namespace ostrakon::texts::jinja
