// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <ostrakon/text/jinja/builtins.hpp>
#include <ostrakon/text/jinja/text.hpp>

namespace ostrakon::texts::jinja {
namespace {

[[noreturn]] void fail_overflow() { fail("integers of more than 64 bits are not implemented"); }

Value no_attribute(const Value& object, const std::string& name) {
  return Value::undefined(text("a ", type_name(object), " has no attribute '", name, "'"));
}

/// Returns the position of an index in a sequence; -1 if there is none.
std::int64_t position(std::int64_t index, std::size_t size) {
  const auto count = static_cast<std::int64_t>(size);
  if (index < 0) index += count;
  return index >= 0 && index < count ? index : -1;
}

std::int64_t floor_divided(std::int64_t a, std::int64_t b) {
  const std::int64_t quotient = a / b;
  return quotient - ((a % b != 0) && ((a < 0) != (b < 0)) ? 1 : 0);
}

double floor_remainder(double a, double b) {
  double remainder = std::fmod(a, b);
  if (remainder != 0) {
    if ((b < 0) != (remainder < 0)) remainder += b;
  } else {
    remainder = std::copysign(0.0, b);
  }
  return remainder;
}

double floor_quotient(double a, double b) {
  const double remainder = floor_remainder(a, b);
  const double quotient = (a - remainder) / b;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double whole = std::floor(quotient);
  return quotient - whole > 0.5 ? whole + 1 : whole;
}

Value whole_power(std::int64_t base, std::int64_t exponent) {
  std::int64_t result = 1;
  for (std::int64_t i = 0; i < exponent; ++i) {
    if (base == 1 || base == 0) return Value::integer(base);
    if (base == -1) return Value::integer(exponent % 2 == 0 ? 1 : -1);
    if (__builtin_mul_overflow(result, base, &result)) fail_overflow();
  }
  return Value::integer(result);
}

Value whole_arithmetic(char operation, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  bool overflows = false;
  switch (operation) {
    case '+':
      overflows = __builtin_add_overflow(a, b, &result);
      break;
    case '-':
      overflows = __builtin_sub_overflow(a, b, &result);
      break;
    case '*':
      overflows = __builtin_mul_overflow(a, b, &result);
      break;
    default:  // '/' for // and '%'
      if (b == 0) fail("division by zero");
      overflows = a == std::numeric_limits<std::int64_t>::min() && b == -1;
      if (overflows) break;
      result = operation == '/' ? floor_divided(a, b) : a - floor_divided(a, b) * b;
  }
  if (overflows) fail_overflow();
  return Value::integer(result);
}

Value number_arithmetic(std::string_view operation, const Value& a, const Value& b) {
  const bool whole = a.is_whole() && b.is_whole();
  if (operation == "**") {
    if (whole && b.integer() >= 0) return whole_power(a.integer(), b.integer());
    if (a.real() == 0 && b.real() < 0) fail("division by zero");
    const double power = std::pow(a.real(), b.real());
    if (std::isnan(power) && !std::isnan(a.real()) && !std::isnan(b.real()))
      fail("complex numbers are not implemented");
    if (std::isinf(power) && std::isfinite(a.real()) && std::isfinite(b.real()))
      fail("a power is too large");
    return Value::real(power);
  }
  if (operation == "/") {
    constexpr std::int64_t exact = std::int64_t{1} << 53;
    if (whole && (std::abs(a.real()) > exact || std::abs(b.real()) > exact))
      fail("dividing integers of more than 53 bits is not implemented");
    if (b.real() == 0) fail("division by zero");
    return Value::real(a.real() / b.real());
  }
  if (whole) return whole_arithmetic(operation[0], a.integer(), b.integer());
  const double x = a.real(), y = b.real();
  if (operation == "+") return Value::real(x + y);
  if (operation == "-") return Value::real(x - y);
  if (operation == "*") return Value::real(x * y);
  if (y == 0) fail("division by zero");
  return Value::real(operation == "%" ? floor_remainder(x, y) : floor_quotient(x, y));
}

Value repeated(const Value& value, std::int64_t count) {
  const auto times = static_cast<std::size_t>(std::max<std::int64_t>(count, 0));
  if (value.is(Kind::string)) {
    const std::string& text = string_of(value, "*");
    if (!text.empty() && times > longest_text / text.size()) fail("a text is too long");
    std::string result;
    result.reserve(text.size() * times);
    if (!text.empty())
      for (std::size_t i = 0; i < times; ++i) result += text;
    return Value::string(std::move(result));
  }
  const Values& values = value.list().values;
  if (!values.empty() && times > longest_list / values.size()) fail("a list is too long");
  Values result;
  if (!values.empty())
    for (std::size_t i = 0; i < times; ++i)
      result.insert(result.end(), values.begin(), values.end());
  return value.is(Kind::list) ? Value::list(std::move(result)) : Value::tuple(std::move(result));
}

bool repeats(const Value& value) {
  return value.is(Kind::string) || value.is(Kind::list) || value.is(Kind::tuple);
}

}  // namespace

const std::string& string_of(const Value& value, const char* what) {
  if (value.is(Kind::undefined)) fail(what, ": ", value.why());
  if (!value.is(Kind::string)) fail(what, ": a ", type_name(value), " is no text");
  if (value.is_markup()) fail(what, ": changing what the filter 'safe' marked is not implemented");
  return value.string();
}

std::string soft_string(const Value& value) {
  return value.is(Kind::string) ? string_of(value, "a filter") : str(value);
}

std::int64_t integer_of(const Value& value, const char* what) {
  if (value.is(Kind::undefined)) fail(what, ": ", value.why());
  if (!value.is_whole()) fail(what, ": a ", type_name(value), " is no integer");
  return value.integer();
}

Values elements(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
      return {};
    case Kind::string: {
      Values characters;
      for (const std::string_view character : characters_of(string_of(value, "iteration")))
        characters.push_back(Value::string(std::string(character)));
      return characters;
    }
    case Kind::list:
    case Kind::tuple:
    case Kind::view:
      return value.list().values;
    case Kind::dict: {
      Values keys;
      for (const auto& entry : value.dict().entries) keys.push_back(entry.first);
      return keys;
    }
    case Kind::iterator: {
      Iterator& iterator = value.iterator();
      if (iterator.broken)
        fail("going on with a generator that a loop left by break is not implemented");
      Values rest(iterator.values.begin() + static_cast<std::ptrdiff_t>(iterator.next),
                  iterator.values.end());
      iterator.next = iterator.values.size();
      return rest;
    }
    default:
      fail("a ", type_name(value), " can't be iterated over");
  }
}

std::int64_t length(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
      return 0;
    case Kind::string:
      return static_cast<std::int64_t>(count_characters(value.string()));
    case Kind::list:
    case Kind::tuple:
    case Kind::view:
      return static_cast<std::int64_t>(value.list().values.size());
    case Kind::dict:
      return static_cast<std::int64_t>(value.dict().entries.size());
    default:
      fail("a ", type_name(value), " has no length");
  }
}

bool contains(const Value& container, const Value& element) {
  switch (container.kind()) {
    case Kind::string:
      if (!element.is(Kind::string)) fail("'in' of a str takes a str, not a ", type_name(element));
      return container.string().find(element.string()) != std::string::npos;
    case Kind::dict:
      if (element.is(Kind::list) || element.is(Kind::dict))
        fail("a ", type_name(element), " can't be a key");
      return container.dict().find(element) != nullptr;
    case Kind::iterator:
      fail("'in' of a generator is not implemented");
    default: {
      const Values values = elements(container);
      return std::any_of(values.begin(), values.end(),
                         [&](const Value& value) { return equal(value, element); });
    }
  }
}

Value attribute(const Value& object, const std::string& name) {
  switch (object.kind()) {
    case Kind::undefined:
      fail(object.why());
    case Kind::dict: {
      const Value* found = object.dict().find(name);
      return found != nullptr ? *found : no_attribute(object, name);
    }
    case Kind::names: {
      const Value* found = object.names().find(name);
      return found != nullptr ? *found : no_attribute(object, name);
    }
    case Kind::loop: {
      const Loop& loop = object.loop();
      const auto count = static_cast<std::int64_t>(loop.values->size());
      if (name == "index") return Value::integer(loop.index + 1);
      if (name == "index0") return Value::integer(loop.index);
      if (name == "revindex") return Value::integer(count - loop.index);
      if (name == "revindex0") return Value::integer(count - loop.index - 1);
      if (name == "first") return Value::boolean(loop.index == 0);
      if (name == "last") return Value::boolean(loop.index + 1 == count);
      if (name == "length") return Value::integer(count);
      if (name == "depth") return Value::integer(loop.depth + 1);
      if (name == "depth0") return Value::integer(loop.depth);
      if (name == "previtem")
        return loop.index > 0 ? (*loop.values)[static_cast<std::size_t>(loop.index - 1)]
                              : Value::undefined("there is no previous item");
      if (name == "nextitem")
        return loop.index + 1 < count ? (*loop.values)[static_cast<std::size_t>(loop.index + 1)]
                                      : Value::undefined("there is no next item");
      return no_attribute(object, name);
    }
    default:
      return no_attribute(object, name);
  }
}

Value item(const Value& object, const Value& key) {
  const auto nothing = [&] {
    return Value::undefined(text("a ", type_name(object), " has no element ", repr(key)));
  };
  switch (object.kind()) {
    case Kind::undefined:
      fail(object.why());
    case Kind::dict: {
      const Value* found = object.dict().find(key);
      return found != nullptr ? *found : nothing();
    }
    case Kind::list:
    case Kind::tuple:
    case Kind::view: {
      if (!key.is_whole() || (object.is(Kind::view) && !object.list().takes_index))
        return nothing();
      const Values& values = object.list().values;
      const std::int64_t at = position(key.integer(), values.size());
      return at < 0 ? nothing() : values[static_cast<std::size_t>(at)];
    }
    case Kind::string: {
      if (!key.is_whole()) return nothing();
      const auto characters = characters_of(string_of(object, "an element"));
      const std::int64_t at = position(key.integer(), characters.size());
      return at < 0 ? nothing()
                    : Value::string(std::string(characters[static_cast<std::size_t>(at)]));
    }
    default:
      return key.is(Kind::string) ? attribute(object, key.string()) : nothing();
  }
}

Value slice(const Value& object, const Value& begin, const Value& end, const Value& step) {
  const std::int64_t by = step.is(Kind::none) ? 1 : integer_of(step, "the step of a slice");
  if (by == 0) fail("the step of a slice is 0");
  if (object.is(Kind::undefined)) fail(object.why());
  if (!repeats(object)) fail("a slice of a ", type_name(object), " is not implemented");
  const std::int64_t count = length(object);
  const auto bound = [&](const Value& value, std::int64_t otherwise) {
    if (value.is(Kind::none)) return otherwise;
    std::int64_t at = integer_of(value, "a slice");
    if (at < 0) at += count;
    return by > 0 ? std::clamp<std::int64_t>(at, 0, count)
                  : std::clamp<std::int64_t>(at, -1, count - 1);
  };
  const std::int64_t first = bound(begin, by > 0 ? 0 : count - 1);
  const std::int64_t last = bound(end, by > 0 ? count : -1);
  std::vector<std::size_t> chosen;
  for (std::int64_t at = first; by > 0 ? at < last : at > last;) {
    chosen.push_back(static_cast<std::size_t>(at));
    if (__builtin_add_overflow(at, by, &at)) break;
  }
  if (object.is(Kind::string)) {
    const auto characters = characters_of(string_of(object, "a slice"));
    std::string result;
    for (const std::size_t at : chosen) result += characters[at];
    return Value::string(std::move(result));
  }
  Values result;
  for (const std::size_t at : chosen) result.push_back(object.list().values[at]);
  return object.is(Kind::list) ? Value::list(std::move(result)) : Value::tuple(std::move(result));
}

Value arithmetic(std::string_view operation, const Value& a, const Value& b) {
  if (operation == "%" && a.is(Kind::string)) fail("formatting by '%' is not implemented");
  for (const Value* value : {&a, &b})
    if (value->is(Kind::undefined)) fail(value->why());
  if (a.is_number() && b.is_number()) return number_arithmetic(operation, a, b);
  if (operation == "+" && a.is(Kind::string) && b.is(Kind::string))
    return Value::string(string_of(a, "+") + string_of(b, "+"));
  if (operation == "+" && a.kind() == b.kind() && (a.is(Kind::list) || a.is(Kind::tuple))) {
    Values values = a.list().values;
    values.insert(values.end(), b.list().values.begin(), b.list().values.end());
    return a.is(Kind::list) ? Value::list(std::move(values)) : Value::tuple(std::move(values));
  }
  if (operation == "*" && repeats(a) && b.is_whole()) return repeated(a, b.integer());
  if (operation == "*" && repeats(b) && a.is_whole()) return repeated(b, a.integer());
  fail("a ", type_name(a), " ", operation, " a ", type_name(b), " has no meaning");
}

Value negative(const Value& value) {
  if (value.is(Kind::undefined)) fail(value.why());
  if (!value.is_number()) fail("a ", type_name(value), " has no negative");
  if (value.is(Kind::real)) return Value::real(-value.real());
  return whole_arithmetic('-', 0, value.integer());
}

}  // namespace ostrakon::texts::jinja
