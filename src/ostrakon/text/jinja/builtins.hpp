// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/text/jinja/value.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace ostrakon::texts::jinja {

/// What filters, tests and functions may ask of the renderer.
class Context {
 public:
  virtual ~Context() = default;
  /// Counts work, such as bytes that were copied. Throws Problem when a template takes too much.
  virtual void spend(std::size_t work) = 0;
};

/// Work that one rendering may take: some seconds.
constexpr std::size_t most_work = 100'000'000;

/// A function of a name, with Python's rules for arguments. Those that are not given are absent.
struct Function {
  const char* name;
  std::vector<const char*> parameters;  ///< the first is the value that a filter or test is of
  std::size_t required;                 ///< how many of them have no default
  Value (*call)(Context& context, const Values& arguments);
  /// Takes any number of further arguments by position, which stand behind all parameters. Only
  /// the first parameter is given by position then.
  bool takes_more = false;
};

struct Filter : Function {};
struct Test : Function {};

/// Return null for a name that is not implemented.
const Filter* find_filter(std::string_view name);
const Test* find_test(std::string_view name);
/// Methods of str, dict, list and tuple; the first parameter is the object. Returns null for what
/// is no method; throws Problem for one of Python's that is not implemented or that is not allowed
/// because it changes its object.
const Function* find_method(const Value& object, std::string_view name);
/// range, dict, namespace, raise_exception, strftime_now; null for another name.
const Value* find_global(std::string_view name);

/// Fits arguments to a function's parameters and calls it.
Value call(Context& context, const Function& function, const Arguments& arguments);

/// The elements that Python iterates over; reads an iterator to its end.
Values elements(const Value& value);
std::int64_t length(const Value& value);
bool contains(const Value& container, const Value& element);
/// object.name and object[key] with Jinja's rules: undefined where there is neither an attribute
/// nor an item.
Value attribute(const Value& object, const std::string& name);
Value item(const Value& object, const Value& key);
Value slice(const Value& object, const Value& begin, const Value& end, const Value& step);
/// a + b and the like, with one of Python's operators.
Value arithmetic(std::string_view operation, const Value& a, const Value& b);
Value negative(const Value& value);

/// Returns the text of a str that is no markup. Throws Problem, naming `what`, for anything else.
const std::string& string_of(const Value& value, const char* what);
/// Returns str(value), as filters do that take any value.
std::string soft_string(const Value& value);
std::int64_t integer_of(const Value& value, const char* what);

}  // namespace ostrakon::texts::jinja
