// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>
#include <ostrakon/text/jinja/filters.hpp>
#include <ostrakon/text/jinja/text.hpp>

namespace ostrakon::texts::jinja {
namespace {

/// Reads an attribute that may have parts, such as "function.name" or "0.role".
class Getter {
 public:
  explicit Getter(const Value& attribute) {
    if (attribute.is(Kind::absent) || attribute.is(Kind::none)) return;
    if (!attribute.is(Kind::string)) {
      parts_.push_back(attribute);
      return;
    }
    for (const std::string& part : split(string_of(attribute, "attribute"), ".", -1)) {
      const bool digits = !part.empty() && part.find_first_not_of("0123456789") == part.npos;
      parts_.push_back(digits ? Value::integer(parse_integer(part, 10).value())
                              : Value::string(part));
    }
  }

  /// `otherwise`: replaces what is not defined, unless it is absent or None.
  Value get(Value value, const Value& otherwise = Value::absent()) const {
    const bool replaces = !otherwise.is(Kind::absent) && !otherwise.is(Kind::none);
    for (const Value& part : parts_) {
      Value found = item(value, part);
      if (found.is(Kind::undefined) && part.is(Kind::string) &&
          find_method(value, part.string()) != nullptr)
        fail("the method '", part.string(), "' as an attribute is not implemented");
      value = replaces && found.is(Kind::undefined) ? otherwise : std::move(found);
    }
    return value;
  }

 private:
  Values parts_;
};

Value without_case(Value value, bool case_sensitive) {
  if (case_sensitive || !value.is(Kind::string)) return value;
  return Value::string(lower(string_of(value, "sorting")));
}

Values positional(const Values& arguments, std::size_t first) {
  return {arguments.begin() + static_cast<std::ptrdiff_t>(first), arguments.end()};
}

/// Calls a filter or test, which `arguments[at]` names, of a value with the arguments behind it.
template <class Kind>
Value call_named(Context& context, const Kind* function, const char* what, const Values& arguments,
                 std::size_t at, const Value& value) {
  if (function == nullptr) fail("the ", what, " '", str(arguments[at]), "' is not implemented");
  Arguments all;
  all.positional = positional(arguments, at + 1);
  all.positional.insert(all.positional.begin(), value);
  context.spend(1);
  return call(context, *function, all);
}

/// select, reject, selectattr, rejectattr. `first`: where the test's name stands.
Value choose(Context& context, const Values& a, bool of_attribute, bool chosen) {
  if (!truth(a[0])) return Value::iterator({});
  const std::size_t first = of_attribute ? 2 : 1;
  if (of_attribute && a.size() < 2) fail("the attribute is not given");
  const Getter getter(of_attribute ? a[1] : Value::absent());
  const bool tests = a.size() > first;
  const Test* test = tests ? find_test(string_of(a[first], "the name of a test")) : nullptr;
  Values result;
  for (const Value& value : elements(a[0])) {
    const Value part = getter.get(value);
    const bool holds = truth(tests ? call_named(context, test, "test", a, first, part) : part);
    if (holds == chosen) result.push_back(value);
  }
  return Value::iterator(std::move(result));
}

/// The filter takes `attribute` and `default` by name, or a filter's name and its arguments.
Value map_values(Context& context, const Values& a) {
  if (!truth(a[0])) return Value::iterator({});
  const bool by_attribute = !a[1].is(Kind::absent);
  if (by_attribute && a.size() > 3) fail("map: both a filter and an attribute are given");
  if (!by_attribute && (a.size() < 4 || !a[2].is(Kind::absent)))
    fail("map: expected a filter, or an attribute and perhaps a default by their names");
  const Getter getter(a[1]);
  const Filter* filter =
      by_attribute ? nullptr : find_filter(string_of(a[3], "the name of a filter"));
  Values result;
  for (const Value& value : elements(a[0]))
    result.push_back(by_attribute ? getter.get(value, a[2])
                                  : call_named(context, filter, "filter", a, 3, value));
  return Value::iterator(std::move(result));
}

Value join(Context& context, const Values& a) {
  const std::string between = a[1].is(Kind::absent) ? "" : soft_string(a[1]);
  const Getter getter(a[2]);
  std::string joined;
  bool first = true;
  for (const Value& value : elements(a[0])) {
    if (!first) joined += between;
    first = false;
    joined += soft_string(getter.get(value));
    if (joined.size() > longest_text) fail("join makes a text that is too long");
  }
  context.spend(joined.size() / 32);
  return Value::string(std::move(joined));
}

Value first_element(Context&, const Values& a) {
  if (a[0].is(Kind::iterator)) {
    Iterator& iterator = a[0].iterator();
    if (iterator.broken) return Value::list(elements(a[0]));  // throws
    if (iterator.next < iterator.values.size()) return iterator.values[iterator.next++];
    return Value::undefined("the sequence has no first element");
  }
  const Values values = elements(a[0]);
  return values.empty() ? Value::undefined("the sequence has no first element") : values.front();
}

Value last_element(Context&, const Values& a) {
  if (a[0].is(Kind::iterator)) fail("last: a generator has no last element");
  const Values values = elements(a[0]);
  return values.empty() ? Value::undefined("the sequence has no last element") : values.back();
}

template <class Less>
void sort_values(Context& context, Values& keys_of, const Less& is_less) {
  std::stable_sort(keys_of.begin(), keys_of.end(), [&](const Value& a, const Value& b) {
    context.spend(1 + weight_of(a) / 8);
    return is_less(a, b);
  });
}

/// Sorts values by keys, as Python does: equal ones keep their order, reversed or not.
Value sorted(Context& context, const Values& values, const Values& keys, bool reversed) {
  Values order;
  for (std::size_t i = 0; i < values.size(); ++i)
    order.push_back(Value::integer(static_cast<std::int64_t>(i)));
  const auto key = [&keys](const Value& index) -> const Value& {
    return keys[static_cast<std::size_t>(index.integer())];
  };
  sort_values(context, order, [&](const Value& a, const Value& b) {
    return reversed ? less(key(b), key(a)) : less(key(a), key(b));
  });
  Values result;
  for (const Value& index : order)
    result.push_back(values[static_cast<std::size_t>(index.integer())]);
  return Value::list(std::move(result));
}

Value sort_list(Context& context, const Values& a) {
  const Values values = elements(a[0]);
  std::vector<Getter> getters;
  if (a[3].is(Kind::string)) {
    for (const std::string& part : split(a[3].string(), ",", -1))
      getters.emplace_back(Value::string(part));
  } else {
    getters.emplace_back(a[3]);
  }
  Values keys;
  for (const Value& value : values) {
    Values parts;
    for (const Getter& getter : getters)
      parts.push_back(without_case(getter.get(value), truth(a[2])));
    keys.push_back(Value::list(std::move(parts)));
  }
  return sorted(context, values, keys, truth(a[1]));
}

Value sort_dict(Context& context, const Values& a) {
  if (!a[0].is(Kind::dict)) fail("dictsort: a ", type_name(a[0]), " is no dict");
  const std::string by = a[2].is(Kind::absent) ? "key" : string_of(a[2], "dictsort");
  if (by != "key" && by != "value") fail("dictsort: by '", by, "'; expected key or value");
  Values items, keys;
  for (const auto& [key, value] : a[0].dict().entries) {
    items.push_back(Value::tuple({key, value}));
    keys.push_back(without_case(by == "key" ? key : value, truth(a[1])));
  }
  return sorted(context, items, keys, truth(a[3]));
}

Value unique(Context& context, const Values& a) {
  const Getter getter(a[2]);
  std::vector<std::pair<Value, Value>> seen;
  Values result;
  for (const Value& value : elements(a[0])) {
    const std::size_t before = seen.size();
    context.spend(1 + before);
    set_entry(seen, without_case(getter.get(value), truth(a[1])), Value::none());
    if (seen.size() != before) result.push_back(value);
  }
  return Value::iterator(std::move(result));
}

template <bool largest>
Value extreme(Context&, const Values& a) {
  const Getter getter(a[2]);
  std::optional<Value> best, best_key;
  for (const Value& value : elements(a[0])) {
    Value key = without_case(getter.get(value), truth(a[1]));
    if (best && !(largest ? less(*best_key, key) : less(key, *best_key))) continue;
    best = value;
    best_key = std::move(key);
  }
  return best ? *best : Value::undefined("the sequence has no elements");
}

Value reversed(Context&, const Values& a) {
  if (a[0].is(Kind::string)) {
    auto characters = characters_of(string_of(a[0], "reverse"));
    std::string result;
    for (auto character = characters.rbegin(); character != characters.rend(); ++character)
      result += *character;
    return Value::string(std::move(result));
  }
  Values values = elements(a[0]);
  std::reverse(values.begin(), values.end());
  return a[0].is(Kind::iterator) ? Value::list(std::move(values))
                                 : Value::iterator(std::move(values));
}

Value total(Context& context, const Values& a) {
  const Getter getter(a[1]);
  Value sum = a[2].is(Kind::absent) ? Value::integer(0) : a[2];
  if (sum.is(Kind::string)) fail("sum: the start is a str");
  for (const Value& value : elements(a[0])) {
    sum = arithmetic("+", sum, getter.get(value));
    context.spend(weight_of(sum));
  }
  return sum;
}

Value items_of(Context&, const Values& a) {
  if (a[0].is(Kind::undefined)) return Value::iterator({});
  if (!a[0].is(Kind::dict)) fail("items: a ", type_name(a[0]), " is no dict");
  Values items;
  for (const auto& [key, value] : a[0].dict().entries) items.push_back(Value::tuple({key, value}));
  return Value::iterator(std::move(items));
}

Value count_elements(Context&, const Values& a) { return Value::integer(length(a[0])); }

}  // namespace

const std::vector<Filter>& sequence_filters() {
  static const std::vector<Filter> filters = {
      {{"count", {""}, 1, count_elements}},
      {{"dictsort", {"value", "case_sensitive", "by", "reverse"}, 1, sort_dict}},
      {{"first", {"seq"}, 1, first_element}},
      {{"items", {"value"}, 1, items_of}},
      {{"join", {"value", "d", "attribute"}, 1, join}},
      {{"last", {"seq"}, 1, last_element}},
      {{"length", {""}, 1, count_elements}},
      {{"list",
        {"value"},
        1,
        [](Context&, const Values& a) { return Value::list(elements(a[0])); }}},
      {{"map", {"value", "attribute", "default"}, 1, map_values, true}},
      {{"max", {"value", "case_sensitive", "attribute"}, 1, extreme<true>}},
      {{"min", {"value", "case_sensitive", "attribute"}, 1, extreme<false>}},
      {{"reject",
        {"value"},
        1,
        [](Context& c, const Values& a) { return choose(c, a, false, false); },
        true}},
      {{"rejectattr",
        {"value"},
        1,
        [](Context& c, const Values& a) { return choose(c, a, true, false); },
        true}},
      {{"reverse", {"value"}, 1, reversed}},
      {{"select",
        {"value"},
        1,
        [](Context& c, const Values& a) { return choose(c, a, false, true); },
        true}},
      {{"selectattr",
        {"value"},
        1,
        [](Context& c, const Values& a) { return choose(c, a, true, true); },
        true}},
      {{"sort", {"value", "reverse", "case_sensitive", "attribute"}, 1, sort_list}},
      {{"sum", {"iterable", "attribute", "start"}, 1, total}},
      {{"unique", {"value", "case_sensitive", "attribute"}, 1, unique}},
  };
  return filters;
}

}  // namespace ostrakon::texts::jinja
