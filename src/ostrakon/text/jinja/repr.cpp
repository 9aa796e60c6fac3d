// SPDX-License-Identifier: Apache-2.0
// The texts of values in Python.
#include <ostrakon/text/jinja/text.hpp>
#include <ostrakon/text/jinja/value.hpp>

namespace ostrakon::texts::jinja {
namespace {

std::string joined(const Values& values, const char* before, const char* after) {
  std::string result = before;
  bool first = true;
  for (const Value& value : values) {
    if (!first) result += ", ";
    first = false;
    result += repr(value);
    if (result.size() > longest_text) fail("a text is longer than ", longest_text, " bytes");
  }
  return result + after;
}

std::string entries_text(const std::vector<std::pair<Value, Value>>& entries) {
  std::string result = "{";
  bool first = true;
  for (const auto& [key, value] : entries) {
    if (!first) result += ", ";
    first = false;
    result += repr(key) + ": " + repr(value);
    if (result.size() > longest_text) fail("a text is longer than ", longest_text, " bytes");
  }
  return result + "}";
}

}  // namespace

std::string type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::absent:
    case Kind::undefined:
      return "Undefined";
    case Kind::none:
      return "NoneType";
    case Kind::boolean:
      return "bool";
    case Kind::integer:
      return "int";
    case Kind::real:
      return "float";
    case Kind::string:
      return "str";
    case Kind::list:
      return "list";
    case Kind::tuple:
      return "tuple";
    case Kind::dict:
      return "dict";
    case Kind::view:
      return value.list().takes_index ? "range" : value.list().shown;
    case Kind::iterator:
      return "generator";
    case Kind::names:
      return "namespace";
    case Kind::callable:
      return "function";
    case Kind::loop:
      return "loop";
  }
  return {};
}

std::string str(const Value& value) {
  if (value.is(Kind::undefined)) return {};
  return value.is(Kind::string) ? value.string() : repr(value);
}

std::string repr(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
      return "Undefined";
    case Kind::none:
      return "None";
    case Kind::boolean:
      return value.integer() != 0 ? "True" : "False";
    case Kind::integer:
      return std::to_string(value.integer());
    case Kind::real:
      return real_text(value.real());
    case Kind::string:
      if (value.is_markup()) fail("showing what the filter 'safe' marked is not implemented");
      return repr_of_text(value.string());
    case Kind::list:
      return joined(value.list().values, "[", "]");
    case Kind::tuple:
      return joined(value.list().values, "(", value.list().values.size() == 1 ? ",)" : ")");
    case Kind::dict:
      return entries_text(value.dict().entries);
    case Kind::view:
      if (value.list().takes_index) return value.list().shown;
      return value.list().shown + joined(value.list().values, "([", "])");
    case Kind::names: {
      std::vector<std::pair<Value, Value>> entries;
      for (const auto& [name, of_name] : value.names().values)
        entries.emplace_back(Value::string(name), of_name);
      return "<Namespace " + entries_text(entries) + ">";
    }
    case Kind::loop:
      return text("<LoopContext ", value.loop().index + 1, "/", value.loop().values->size(), ">");
    default:
      fail("printing a ", type_name(value), " is not implemented");
  }
}

}  // namespace ostrakon::texts::jinja
