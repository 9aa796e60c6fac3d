// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <ostrakon/base/text.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ostrakon::texts::jinja {

/// What is wrong with a template or with the data that it is given. Whoever knows the place in the
/// template makes an Error of it.
class Problem : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  throw Problem(text(parts...));
}

/// No list or dict is nested deeper, so that recursion over a value can't overflow the stack.
constexpr int deepest_value = 200;
/// No text is longer, in bytes, and no list has more elements, those of its elements included.
constexpr std::size_t longest_text = std::size_t{1} << 28;
constexpr std::size_t longest_list = std::size_t{1} << 24;

enum class Kind {
  absent,     ///< an argument that was not given
  undefined,  ///< what a template reads and nobody has set
  none,
  boolean,
  integer,
  real,
  string,
  list,
  tuple,
  dict,
  view,      ///< the result of range, or of a dict's items, keys or values
  iterator,  ///< is read once, as Python's generators are
  names,     ///< a namespace
  callable,
  loop  ///< the variable `loop` of a for loop
};

class Value;
using Values = std::vector<Value>;
struct Dict;
struct Iterator;
struct Names;
struct Callable;
struct Loop;

struct List {
  Values values;
  int depth = 1;             ///< of lists and dicts inside of each other
  std::size_t weight = 1;    ///< values in it, as often as they are
  std::string shown;         ///< what repr() begins with, for a view
  bool takes_index = false;  ///< for a view
};

/// A value of a template, with the meaning that it has in Python. Copies share what they hold; only
/// a namespace, an iterator and a loop change.
class Value {
 public:
  Value() = default;
  static Value absent() { return Value(Kind::absent); }
  static Value none() { return Value(Kind::none); }
  static Value undefined(std::string why);
  static Value boolean(bool value);
  static Value integer(std::int64_t value);
  static Value real(double value);
  static Value string(std::string value);
  static Value list(Values values);
  static Value tuple(Values values);
  static Value view(Values values, std::string shown, bool takes_index);
  static Value iterator(Values values);
  static Value dict(std::vector<std::pair<Value, Value>> entries);
  static Value names(std::shared_ptr<Names> names);
  static Value callable(std::shared_ptr<const Callable> callable);
  /// Does not own the loop, whose variable never outlives it.
  static Value loop(Loop& loop);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_number() const { return is(Kind::boolean) || is(Kind::integer) || is(Kind::real); }
  bool is_whole() const { return is(Kind::boolean) || is(Kind::integer); }

  /// What was read and is not defined.
  const std::string& why() const { return *static_cast<const std::string*>(object_.get()); }
  std::int64_t integer() const { return integer_; }
  double real() const { return is(Kind::real) ? real_ : static_cast<double>(integer_); }
  const std::string& string() const { return *static_cast<const std::string*>(object_.get()); }
  const List& list() const { return *static_cast<const List*>(object_.get()); }
  const Dict& dict() const { return *static_cast<const Dict*>(object_.get()); }
  Iterator& iterator() const;
  Names& names() const;
  const Callable& callable() const { return *static_cast<const Callable*>(object_.get()); }
  Loop& loop() const;
  bool is_same_object(const Value& other) const { return object_ == other.object_; }

  /// Marked by the filter `safe`. Python escapes what is joined to such text; that is not
  /// implemented, so it may only be printed.
  bool is_markup() const { return markup_; }
  Value as_markup() const;

 private:
  explicit Value(Kind kind) : kind_(kind) {}
  Value(Kind kind, std::shared_ptr<const void> object) : kind_(kind), object_(std::move(object)) {}

  Kind kind_ = Kind::absent;
  bool markup_ = false;
  union {
    std::int64_t integer_ = 0;
    double real_;
  };
  std::shared_ptr<const void> object_;
};

struct Dict {
  std::vector<std::pair<Value, Value>> entries;  ///< in the order in which keys were added
  int depth = 1;
  std::size_t weight = 1;
  /// Returns the value of a key; null if there is none.
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
};

struct Iterator {
  Values values;
  std::size_t next = 0;
  bool broken = false;  ///< a loop over it ended by break
};

struct Names {
  std::vector<std::pair<std::string, Value>> values;
  const Value* find(std::string_view name) const;
  /// Throws Problem for a name with a leading underscore, as transformers does.
  void set(const std::string& name, const Value& value);
};

/// Arguments of a call.
struct Arguments {
  Values positional;
  std::vector<std::pair<std::string, Value>> named;
};

class Context;

struct Callable {
  virtual ~Callable() = default;
  virtual Value call(Context& context, const Arguments& arguments) const = 0;
};

/// The variable `loop`.
struct Loop {
  const Values* values = nullptr;
  std::int64_t index = 0;  ///< from 0
  int depth = 0;           ///< of recursive loops, which are refused: 0
  Values last_changed;
  bool has_changed = false;
};

/// Throws Problem for JSON that is nested deeper than deepest_value: copying or printing it could
/// overflow the stack.
void check_depth(const nlohmann::ordered_json& json);

/// Makes a value of JSON. Throws Problem for what is nested deeper than deepest_value.
Value from_json(const nlohmann::ordered_json& json);

/// Returns an entry of a dict's keys and values; a later value of a key replaces an earlier one.
void set_entry(std::vector<std::pair<Value, Value>>& entries, const Value& key, const Value& value);

/// Returns about how much work it takes to go through a value once.
std::size_t weight_of(const Value& value);

/// The name of a value's type in Python, for messages: "str", "list".
std::string type_name(const Value& value);

bool truth(const Value& value);
bool equal(const Value& a, const Value& b);
/// Returns whether a < b. Throws Problem for values that Python does not order.
bool less(const Value& a, const Value& b);
/// Returns str(value), repr(value) in Python. Throws Problem for what has no stable text.
std::string str(const Value& value);
std::string repr(const Value& value);

/// Returns json.dumps(value) in Python, as transformers' filter tojson calls it.
struct JsonStyle {
  bool ascii_only = false;
  bool indents = false;
  std::string indent;
  std::string between_items = ", ", after_key = ": ";
  bool sorts_keys = false;
};
std::string to_json(const Value& value, const JsonStyle& style);

}  // namespace ostrakon::texts::jinja
