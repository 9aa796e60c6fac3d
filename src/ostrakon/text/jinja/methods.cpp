// SPDX-License-Identifier: Apache-2.0
// Methods of Python's str, dict, list and tuple, and of Jinja's loop.
#include <algorithm>
#include <optional>
#include <ostrakon/text/jinja/builtins.hpp>
#include <ostrakon/text/jinja/text.hpp>

namespace ostrakon::texts::jinja {
namespace {

const std::string& self(const Values& arguments) { return string_of(arguments[0], "a method"); }

/// An argument that is a str, or None or not given.
std::optional<std::string> optional_string(const Value& value, const char* what) {
  if (value.is(Kind::absent) || value.is(Kind::none)) return std::nullopt;
  return string_of(value, what);
}

std::int64_t integer_or(const Value& value, std::int64_t otherwise, const char* what) {
  return value.is(Kind::absent) ? otherwise : integer_of(value, what);
}

Value strings(const std::vector<std::string>& parts) {
  Values values;
  for (const std::string& part : parts) values.push_back(Value::string(part));
  return Value::list(std::move(values));
}

template <Side side>
Value strip_method(Context&, const Values& arguments) {
  return Value::string(
      std::string(strip(self(arguments), optional_string(arguments[1], "strip"), side)));
}

template <bool at_end>
bool has_affix(const std::string& text, const Value& value) {
  const std::string& affix = string_of(value, at_end ? "endswith" : "startswith");
  return affix.size() <= text.size() &&
         text.compare(at_end ? text.size() - affix.size() : 0, affix.size(), affix) == 0;
}

template <bool at_end>
Value affix_method(Context&, const Values& arguments) {
  const std::string& text = self(arguments);
  if (!arguments[1].is(Kind::tuple)) return Value::boolean(has_affix<at_end>(text, arguments[1]));
  const Values& any = arguments[1].list().values;
  return Value::boolean(std::any_of(
      any.begin(), any.end(), [&](const Value& value) { return has_affix<at_end>(text, value); }));
}

template <bool at_end>
Value remove_affix(Context&, const Values& arguments) {
  const std::string& text = self(arguments);
  if (!has_affix<at_end>(text, arguments[1])) return arguments[0];
  const std::size_t size = arguments[1].string().size();
  return Value::string(at_end ? text.substr(0, text.size() - size) : text.substr(size));
}

/// A test of all characters, which ASCII has and fails where there are others.
template <class Test>
Value all_ascii(const Values& arguments, const Test& test) {
  const std::string& text = self(arguments);
  if (!is_ascii(text)) fail("a test of letters outside of ASCII is not implemented");
  return Value::boolean(!text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
    return test(static_cast<unsigned char>(c));
  }));
}

template <bool from_right>
Value find_text(Context&, const Values& arguments) {
  const std::string& text = self(arguments);
  const std::string& part = string_of(arguments[1], "find");
  const std::size_t at = from_right ? text.rfind(part) : text.find(part);
  if (at == std::string::npos) return Value::integer(-1);
  return Value::integer(
      static_cast<std::int64_t>(count_characters(std::string_view(text).substr(0, at))));
}

template <bool from_right>
Value partition(Context&, const Values& arguments) {
  const std::string& text = self(arguments);
  const std::string& separator = string_of(arguments[1], "partition");
  if (separator.empty()) fail("partition: empty separator");
  const std::size_t at = from_right ? text.rfind(separator) : text.find(separator);
  const Value none = Value::string("");
  if (at == std::string::npos)
    return Value::tuple(from_right ? Values{none, none, arguments[0]}
                                   : Values{arguments[0], none, none});
  return Value::tuple({Value::string(text.substr(0, at)), arguments[1],
                       Value::string(text.substr(at + separator.size()))});
}

Value count_in_text(Context&, const Values& arguments) {
  const std::string& text = self(arguments);
  const std::string& part = string_of(arguments[1], "count");
  if (part.empty()) return Value::integer(static_cast<std::int64_t>(count_characters(text)) + 1);
  std::int64_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos;
       at = text.find(part, at + part.size()))
    ++count;
  return Value::integer(count);
}

Value join_method(Context& context, const Values& arguments) {
  const std::string& between = self(arguments);
  std::string joined;
  bool first = true;
  for (const Value& value : elements(arguments[1])) {
    if (!first) joined += between;
    first = false;
    joined += string_of(value, "join");
    if (joined.size() > longest_text) fail("join makes a text that is too long");
  }
  context.spend(joined.size() / 64);
  return Value::string(std::move(joined));
}

const std::vector<Function>& text_methods() {
  static const std::vector<Function> methods = {
      {"strip", {"", ""}, 1, strip_method<Side::both>},
      {"lstrip", {"", ""}, 1, strip_method<Side::left>},
      {"rstrip", {"", ""}, 1, strip_method<Side::right>},
      {"split",
       {"", "sep", "maxsplit"},
       1,
       [](Context&, const Values& a) {
         return strings(
             split(self(a), optional_string(a[1], "split"), integer_or(a[2], -1, "split")));
       }},
      {"rsplit",
       {"", "sep", "maxsplit"},
       1,
       [](Context&, const Values& a) {
         return strings(split_from_right(self(a), optional_string(a[1], "rsplit"),
                                         integer_or(a[2], -1, "rsplit")));
       }},
      {"splitlines",
       {"", "keepends"},
       1,
       [](Context&, const Values& a) { return strings(split_lines(self(a), truth(a[1]))); }},
      {"replace",
       {"", "", "", ""},
       3,
       [](Context&, const Values& a) {
         return Value::string(replace(self(a), string_of(a[1], "replace"),
                                      string_of(a[2], "replace"), integer_or(a[3], -1, "replace")));
       }},
      {"startswith", {"", ""}, 2, affix_method<false>},
      {"endswith", {"", ""}, 2, affix_method<true>},
      {"removeprefix", {"", ""}, 2, remove_affix<false>},
      {"removesuffix", {"", ""}, 2, remove_affix<true>},
      {"upper", {""}, 1, [](Context&, const Values& a) { return Value::string(upper(self(a))); }},
      {"lower", {""}, 1, [](Context&, const Values& a) { return Value::string(lower(self(a))); }},
      {"capitalize",
       {""},
       1,
       [](Context&, const Values& a) { return Value::string(capitalized(self(a))); }},
      {"title", {""}, 1, [](Context&, const Values& a) { return Value::string(titled(self(a))); }},
      {"islower",
       {""},
       1,
       [](Context&, const Values& a) { return Value::boolean(is_lower(self(a))); }},
      {"isupper",
       {""},
       1,
       [](Context&, const Values& a) { return Value::boolean(is_upper(self(a))); }},
      {"isdigit",
       {""},
       1,
       [](Context&, const Values& a) {
         return all_ascii(a, [](unsigned char c) { return c >= '0' && c <= '9'; });
       }},
      {"isalpha",
       {""},
       1,
       [](Context&, const Values& a) {
         return all_ascii(a, [](unsigned char c) { return std::isalpha(c) != 0; });
       }},
      {"isalnum",
       {""},
       1,
       [](Context&, const Values& a) {
         return all_ascii(a, [](unsigned char c) { return std::isalnum(c) != 0; });
       }},
      {"isspace",
       {""},
       1,
       [](Context&, const Values& a) {
         const std::string& text = self(a);
         return Value::boolean(!text.empty() && strip(text, {}, Side::left).empty());
       }},
      {"find", {"", ""}, 2, find_text<false>},
      {"rfind", {"", ""}, 2, find_text<true>},
      {"partition", {"", ""}, 2, partition<false>},
      {"rpartition", {"", ""}, 2, partition<true>},
      {"count", {"", ""}, 2, count_in_text},
      {"join", {"", ""}, 2, join_method},
  };
  return methods;
}

Value dict_view(const Value& dict, const char* name, bool keys, bool values) {
  Values result;
  for (const auto& [key, value] : dict.dict().entries)
    result.push_back(keys && values ? Value::tuple({key, value}) : keys ? key : value);
  return Value::view(std::move(result), name, false);
}

const std::vector<Function>& dict_methods() {
  static const std::vector<Function> methods = {
      {"items",
       {""},
       1,
       [](Context&, const Values& a) { return dict_view(a[0], "dict_items", true, true); }},
      {"keys",
       {""},
       1,
       [](Context&, const Values& a) { return dict_view(a[0], "dict_keys", true, false); }},
      {"values",
       {""},
       1,
       [](Context&, const Values& a) { return dict_view(a[0], "dict_values", false, true); }},
      {"get",
       {"", "", ""},
       2,
       [](Context&, const Values& a) {
         if (a[1].is(Kind::list) || a[1].is(Kind::dict))
           fail("a ", type_name(a[1]), " can't be a key");
         const Value* found = a[0].dict().find(a[1]);
         return found != nullptr ? *found : a[2].is(Kind::absent) ? Value::none() : a[2];
       }},
      {"copy", {""}, 1, [](Context&, const Values& a) { return a[0]; }},
  };
  return methods;
}

const std::vector<Function>& list_methods() {
  static const std::vector<Function> methods = {
      {"index",
       {"", ""},
       2,
       [](Context&, const Values& a) {
         const Values& values = a[0].list().values;
         const auto found = std::find_if(values.begin(), values.end(),
                                         [&](const Value& value) { return equal(value, a[1]); });
         if (found == values.end()) fail("index: the list has no such element");
         return Value::integer(found - values.begin());
       }},
      {"count",
       {"", ""},
       2,
       [](Context&, const Values& a) {
         const Values& values = a[0].list().values;
         return Value::integer(std::count_if(
             values.begin(), values.end(), [&](const Value& value) { return equal(value, a[1]); }));
       }},
      {"copy", {""}, 1, [](Context&, const Values& a) { return a[0]; }},
  };
  return methods;
}

const std::vector<Function>& loop_methods() {
  static const std::vector<Function> methods = {
      {"cycle",
       {""},
       1,
       [](Context&, const Values& a) {
         if (a.size() < 2) fail("cycle: no items are given");
         return a[1 + static_cast<std::size_t>(a[0].loop().index) % (a.size() - 1)];
       },
       true},
      {"changed",
       {""},
       1,
       [](Context&, const Values& a) {
         Loop& loop = a[0].loop();
         const Values now(a.begin() + 1, a.end());
         const bool same = loop.has_changed && loop.last_changed.size() == now.size() &&
                           std::equal(now.begin(), now.end(), loop.last_changed.begin(), equal);
         loop.last_changed = now;
         loop.has_changed = true;
         return Value::boolean(!same);
       },
       true},
  };
  return methods;
}

const Function* find_in(const std::vector<Function>& functions, std::string_view name) {
  for (const Function& function : functions)
    if (name == function.name) return &function;
  return nullptr;
}

bool is_one_of(std::string_view name, const std::vector<std::string_view>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// Attributes that Python has and that are not implemented: they are no items.
void refuse_unknown(const Value& object, std::string_view name) {
  const auto refuse = [&](const std::vector<std::string_view>& names) {
    if (is_one_of(name, names))
      fail("'", name, "' of a ", type_name(object), " is not implemented");
  };
  const auto refuse_change = [&](const std::vector<std::string_view>& names) {
    if (is_one_of(name, names))
      fail("'", name, "' would change a ", type_name(object), ", which templates may not");
  };
  if (name.substr(0, 2) == "__") fail("the attribute '", name, "' is not implemented");
  switch (object.kind()) {
    case Kind::string:
      refuse({"casefold",   "center",      "encode",   "expandtabs", "format",
              "format_map", "index",       "isascii",  "isdecimal",  "isidentifier",
              "isnumeric",  "isprintable", "istitle",  "ljust",      "maketrans",
              "rindex",     "rjust",       "swapcase", "translate",  "zfill"});
      break;
    case Kind::dict:
      refuse({"fromkeys"});
      refuse_change({"clear", "pop", "popitem", "setdefault", "update"});
      break;
    case Kind::list:
      refuse_change({"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"});
      break;
    case Kind::boolean:
    case Kind::integer:
    case Kind::real:
      refuse({"as_integer_ratio", "bit_count", "bit_length", "conjugate", "denominator",
              "from_bytes", "fromhex", "hex", "imag", "is_integer", "numerator", "real",
              "to_bytes"});
      break;
    case Kind::callable:
      refuse({"arguments", "caller", "catch_kwargs", "catch_varargs", "explicit_caller", "name"});
      break;
    case Kind::iterator:
      refuse({"close", "gi_code", "gi_frame", "gi_running", "gi_suspended", "gi_yieldfrom", "send",
              "throw"});
      break;
    case Kind::view:
      refuse({"count", "index", "isdisjoint", "mapping", "start", "step", "stop"});
      break;
    default:
      break;
  }
}

}  // namespace

const Function* find_method(const Value& object, std::string_view name) {
  const Function* found = nullptr;
  if (object.is(Kind::string)) found = find_in(text_methods(), name);
  if (object.is(Kind::dict)) found = find_in(dict_methods(), name);
  if (object.is(Kind::loop)) found = find_in(loop_methods(), name);
  if (object.is(Kind::list) || (object.is(Kind::tuple) && name != "copy"))
    found = find_in(list_methods(), name);
  if (found == nullptr) refuse_unknown(object, name);
  return found;
}

}  // namespace ostrakon::texts::jinja
