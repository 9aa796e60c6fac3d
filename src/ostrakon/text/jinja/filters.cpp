// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/text/jinja/filters.hpp>

#include <cmath>
#include <cstdio>
#include <optional>
#include <ostrakon/text/jinja/text.hpp>

namespace ostrakon::texts::jinja {
namespace {

std::int64_t whole(double value) {
  if (!(std::abs(value) < 9.2e18)) fail("int: ", value, " is not an integer of 64 bits");
  return static_cast<std::int64_t>(value);
}

/// int(text) that Python refuses may be the text of a float.
Value integer_of_text(const std::string& text, int base, const Value& otherwise) {
  if (const auto value = parse_integer(text, base)) return Value::integer(*value);
  const auto real = parse_real(text);
  return real && std::isfinite(*real) ? Value::integer(whole(*real)) : otherwise;
}

Value to_integer(Context&, const Values& a) {
  const Value otherwise = a[1].is(Kind::absent) ? Value::integer(0) : a[1];
  const int base = a[2].is(Kind::absent) ? 10 : static_cast<int>(integer_of(a[2], "int"));
  switch (a[0].kind()) {
    case Kind::undefined:
      fail(a[0].why());
    case Kind::string:
      return integer_of_text(string_of(a[0], "int"), base, otherwise);
    case Kind::boolean:
    case Kind::integer:
      return Value::integer(a[0].integer());
    case Kind::real:
      return std::isfinite(a[0].real()) ? Value::integer(whole(a[0].real())) : otherwise;
    default:
      return otherwise;
  }
}

Value to_real(Context&, const Values& a) {
  const Value otherwise = a[1].is(Kind::absent) ? Value::real(0) : a[1];
  if (a[0].is(Kind::undefined)) fail(a[0].why());
  if (a[0].is_number()) return Value::real(a[0].real());
  if (!a[0].is(Kind::string)) return otherwise;
  const auto value = parse_real(string_of(a[0], "float"));
  return value ? Value::real(*value) : otherwise;
}

Value round_number(Context&, const Values& a) {
  const std::int64_t digits = a[1].is(Kind::absent) ? 0 : integer_of(a[1], "round");
  const std::string method = a[2].is(Kind::absent) ? "common" : string_of(a[2], "round");
  if (!a[0].is_number()) fail("round: a ", type_name(a[0]), " is no number");
  if (digits < 0 || digits > 15) fail("round: ", digits, " digits are not implemented");
  if (method == "common") {
    if (a[0].is_whole()) return Value::integer(a[0].integer());
    if (!std::isfinite(a[0].real())) return a[0];
    // Exact decimal digits, rounded to even, as Python's round().
    char digits_text[512];
    std::snprintf(digits_text, sizeof digits_text, "%.*f", static_cast<int>(digits), a[0].real());
    return Value::real(parse_real(digits_text).value());
  }
  if (method != "ceil" && method != "floor")
    fail("round: method '", method, "'; expected common, ceil or floor");
  const double scale = std::pow(10.0, static_cast<double>(digits));
  const double scaled = a[0].real() * scale;
  return Value::real((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

Value absolute(Context&, const Values& a) {
  if (!a[0].is_number()) fail("abs: a ", type_name(a[0]), " is no number");
  if (a[0].is(Kind::real)) return Value::real(std::abs(a[0].real()));
  return a[0].integer() < 0 ? negative(a[0]) : Value::integer(a[0].integer());
}

Value indent(Context&, const Values& a) {
  const std::string& text = string_of(a[0], "indent");
  std::string by;
  if (a[1].is(Kind::string)) {
    by = string_of(a[1], "indent");
  } else {
    const std::int64_t width = a[1].is(Kind::absent) ? 4 : integer_of(a[1], "indent");
    if (width > 1000) fail("indent: the width ", width, " is too large");
    if (width > 0) by.assign(static_cast<std::size_t>(width), ' ');
  }
  const auto lines = split_lines(text + "\n", false);
  if (by.size() > longest_text / (lines.size() + 1)) fail("indent makes a text that is too long");
  std::string result = truth(a[2]) ? by : "";
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) result += "\n";
    if (i > 0 && (truth(a[3]) || !lines[i].empty())) result += by;
    result += lines[i];
  }
  return Value::string(std::move(result));
}

Value to_json_text(Context& context, const Values& a) {
  JsonStyle style;
  style.ascii_only = truth(a[1]);
  if (!a[2].is(Kind::absent) && !a[2].is(Kind::none)) {
    style.indents = true;
    style.between_items = ",";
    if (a[2].is(Kind::string)) {
      style.indent = string_of(a[2], "tojson");
    } else {
      const std::int64_t width = integer_of(a[2], "tojson");
      if (width > 1000) fail("tojson: the indent ", width, " is too large");
      if (width > 0) style.indent.assign(static_cast<std::size_t>(width), ' ');
    }
  }
  if (!a[3].is(Kind::absent) && !a[3].is(Kind::none)) {
    const Values separators = elements(a[3]);
    if (separators.size() != 2) fail("tojson: separators are ", separators.size(), "; expected 2");
    style.between_items = string_of(separators[0], "tojson");
    style.after_key = string_of(separators[1], "tojson");
  }
  style.sorts_keys = truth(a[4]);
  std::string json = to_json(a[0], style);
  context.spend(json.size() / 32);
  return Value::string(std::move(json));
}

Value default_value(Context&, const Values& a) {
  const bool replaced = a[0].is(Kind::undefined) || (truth(a[2]) && !truth(a[0]));
  if (!replaced) return a[0];
  return a[1].is(Kind::absent) ? Value::string("") : a[1];
}

template <std::string (*change)(std::string_view)>
Value change_text(Context&, const Values& a) {
  return Value::string(change(soft_string(a[0])));
}

Value trim(Context&, const Values& a) {
  std::optional<std::string> characters;
  if (!a[1].is(Kind::absent) && !a[1].is(Kind::none)) characters = string_of(a[1], "trim");
  return Value::string(std::string(strip(soft_string(a[0]), characters, Side::both)));
}

Value replace_text(Context&, const Values& a) {
  const bool all = a[3].is(Kind::absent) || a[3].is(Kind::none);
  return Value::string(replace(soft_string(a[0]), soft_string(a[1]), soft_string(a[2]),
                               all ? -1 : integer_of(a[3], "replace")));
}

Value mark_safe(Context&, const Values& a) {
  return a[0].is(Kind::string) ? a[0].as_markup() : Value::string(str(a[0])).as_markup();
}

}  // namespace

const std::vector<Filter>& value_filters() {
  static const std::vector<Filter> filters = {
      {{"abs", {""}, 1, absolute}},
      {{"capitalize", {"s"}, 1, change_text<capitalized>}},
      {{"d", {"value", "default_value", "boolean"}, 1, default_value}},
      {{"default", {"value", "default_value", "boolean"}, 1, default_value}},
      {{"float", {"value", "default"}, 1, to_real}},
      {{"indent", {"s", "width", "first", "blank"}, 1, indent}},
      {{"int", {"value", "default", "base"}, 1, to_integer}},
      {{"lower", {"s"}, 1, change_text<lower>}},
      {{"replace", {"s", "old", "new", "count"}, 3, replace_text}},
      {{"round", {"value", "precision", "method"}, 1, round_number}},
      {{"safe", {"value"}, 1, mark_safe}},
      {{"string",
        {"s"},
        1,
        [](Context&, const Values& a) {
          return a[0].is(Kind::string) ? a[0] : Value::string(str(a[0]));
        }}},
      {{"title", {"s"}, 1, change_text<words_titled>}},
      {{"tojson", {"x", "ensure_ascii", "indent", "separators", "sort_keys"}, 1, to_json_text}},
      {{"trim", {"value", "chars"}, 1, trim}},
      {{"upper", {"s"}, 1, change_text<upper>}},
  };
  return filters;
}

const Filter* find_filter(std::string_view name) {
  for (const auto* filters : {&value_filters(), &sequence_filters()})
    for (const Filter& filter : *filters)
      if (name == filter.name) return &filter;
  return nullptr;
}

}  // namespace ostrakon::texts::jinja
