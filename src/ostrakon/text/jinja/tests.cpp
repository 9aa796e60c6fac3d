// SPDX-License-Identifier: Apache-2.0
// Jinja's tests, which follow `is`.
#include <ostrakon/text/jinja/builtins.hpp>
#include <ostrakon/text/jinja/text.hpp>

namespace ostrakon::texts::jinja {
namespace {

template <Kind... kinds>
Test kind_test(const char* name) {
  return {{name, {""}, 1, [](Context&, const Values& values) {
             return Value::boolean(((values[0].kind() == kinds) || ...));
           }}};
}

Test plain_test(const char* name, std::size_t arguments, Value (*call)(Context&, const Values&)) {
  return {{name, std::vector<const char*>(arguments + 1, ""), arguments + 1, call}};
}

Value is_boolean(const Value& value, bool which) {
  return Value::boolean(value.is(Kind::boolean) && truth(value) == which);
}

Value is_same(Context&, const Values& a) {
  const bool single = a[1].is(Kind::none) || a[1].is(Kind::boolean);
  if (!single) fail("the test 'sameas' with other than none, true and false is not implemented");
  return Value::boolean(a[0].kind() == a[1].kind() && equal(a[0], a[1]));
}

Value has_remainder(const Value& value, std::int64_t by, std::int64_t remainder) {
  return Value::boolean(
      equal(arithmetic("%", value, Value::integer(by)), Value::integer(remainder)));
}

Value is_equal(Context&, const Values& a) { return Value::boolean(equal(a[0], a[1])); }
Value is_unequal(Context&, const Values& a) { return Value::boolean(!equal(a[0], a[1])); }
Value is_less(Context&, const Values& a) { return Value::boolean(less(a[0], a[1])); }
Value is_greater(Context&, const Values& a) { return Value::boolean(less(a[1], a[0])); }
Value is_at_most(Context&, const Values& a) {
  return Value::boolean(less(a[0], a[1]) || equal(a[0], a[1]));
}
Value is_at_least(Context&, const Values& a) {
  return Value::boolean(less(a[1], a[0]) || equal(a[0], a[1]));
}

const std::vector<Test>& tests() {
  static const std::vector<Test> all = {
      kind_test<Kind::undefined>("undefined"),
      kind_test<Kind::none>("none"),
      kind_test<Kind::boolean>("boolean"),
      kind_test<Kind::integer>("integer"),
      kind_test<Kind::real>("float"),
      kind_test<Kind::boolean, Kind::integer, Kind::real>("number"),
      kind_test<Kind::string>("string"),
      kind_test<Kind::dict>("mapping"),
      kind_test<Kind::callable, Kind::undefined, Kind::loop>("callable"),
      kind_test<Kind::undefined, Kind::string, Kind::list, Kind::tuple, Kind::dict, Kind::view,
                Kind::iterator, Kind::loop>("iterable"),
      plain_test(
          "defined", 0,
          [](Context&, const Values& a) { return Value::boolean(!a[0].is(Kind::undefined)); }),
      plain_test("sequence", 0,
                 [](Context&, const Values& a) {
                   switch (a[0].kind()) {
                     case Kind::undefined:
                     case Kind::string:
                     case Kind::list:
                     case Kind::tuple:
                     case Kind::dict:
                       return Value::boolean(true);
                     case Kind::view:
                       return Value::boolean(a[0].list().takes_index);
                     default:
                       return Value::boolean(false);
                   }
                 }),
      plain_test("true", 0, [](Context&, const Values& a) { return is_boolean(a[0], true); }),
      plain_test("false", 0, [](Context&, const Values& a) { return is_boolean(a[0], false); }),
      plain_test("odd", 0, [](Context&, const Values& a) { return has_remainder(a[0], 2, 1); }),
      plain_test("even", 0, [](Context&, const Values& a) { return has_remainder(a[0], 2, 0); }),
      plain_test("divisibleby", 1,
                 [](Context&, const Values& a) {
                   return Value::boolean(equal(arithmetic("%", a[0], a[1]), Value::integer(0)));
                 }),
      plain_test(
          "lower", 0,
          [](Context&, const Values& a) { return Value::boolean(is_lower(soft_string(a[0]))); }),
      plain_test(
          "upper", 0,
          [](Context&, const Values& a) { return Value::boolean(is_upper(soft_string(a[0]))); }),
      plain_test("in", 1,
                 [](Context&, const Values& a) { return Value::boolean(contains(a[1], a[0])); }),
      plain_test("sameas", 1, is_same),
      plain_test("==", 1, is_equal),
      plain_test("eq", 1, is_equal),
      plain_test("equalto", 1, is_equal),
      plain_test("!=", 1, is_unequal),
      plain_test("ne", 1, is_unequal),
      plain_test("<", 1, is_less),
      plain_test("lt", 1, is_less),
      plain_test("lessthan", 1, is_less),
      plain_test(">", 1, is_greater),
      plain_test("gt", 1, is_greater),
      plain_test("greaterthan", 1, is_greater),
      plain_test("<=", 1, is_at_most),
      plain_test("le", 1, is_at_most),
      plain_test(">=", 1, is_at_least),
      plain_test("ge", 1, is_at_least),
  };
  return all;
}

}  // namespace

const Test* find_test(std::string_view name) {
  for (const Test& test : tests())
    if (name == test.name) return &test;
  return nullptr;
}

}  // namespace ostrakon::texts::jinja
