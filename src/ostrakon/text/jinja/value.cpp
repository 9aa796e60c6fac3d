// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/text/jinja/value.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace ostrakon::texts::jinja {
namespace {

/// The depth of what an element of a list or dict is. Throws Problem for what may not be in one, as
/// a template could make a value that contains itself, or that outlives what it refers to.
int depth_inside(const Value& element) {
  int depth = 0;
  switch (element.kind()) {
    case Kind::list:
    case Kind::tuple:
    case Kind::view:
      depth = element.list().depth;
      break;
    case Kind::dict:
      depth = element.dict().depth;
      break;
    case Kind::iterator:
    case Kind::names:
    case Kind::callable:
    case Kind::loop:
      fail("a ", type_name(element), " inside of a list, dict or namespace is not implemented");
    default:
      break;
  }
  if (depth >= deepest_value) fail("a value is nested deeper than ", deepest_value);
  return depth;
}

/// Counts an element in what it becomes a part of, a List or a Dict.
template <class Container>
void count_element(Container& container, const Value& element) {
  container.depth = std::max(container.depth, depth_inside(element) + 1);
  container.weight += weight_of(element);
  if (container.weight > longest_list)
    fail("a list or dict has more than ", longest_list, " elements");
}

std::shared_ptr<List> make_list(Values values) {
  auto list = std::make_shared<List>();
  for (const Value& value : values) count_element(*list, value);
  list->values = std::move(values);
  return list;
}

/// Whether Python takes it for a key.
bool is_hashable(const Value& value) {
  if (value.is(Kind::tuple))
    return std::all_of(value.list().values.begin(), value.list().values.end(), is_hashable);
  return !value.is(Kind::list) && !value.is(Kind::dict) && !value.is(Kind::names) &&
         !value.is(Kind::view);
}

bool equal_all(const Values& a, const Values& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), equal);
}

int compare_numbers(const Value& a, const Value& b) {
  const auto order = [](auto x, auto y) { return x < y ? -1 : x > y ? 1 : 0; };
  if (a.is_whole() && b.is_whole()) return order(a.integer(), b.integer());
  return order(a.real(), b.real());
}

}  // namespace

Value Value::undefined(std::string why) {
  return {Kind::undefined, std::make_shared<const std::string>(std::move(why))};
}

Value Value::boolean(bool value) {
  Value result(Kind::boolean);
  result.integer_ = value ? 1 : 0;
  return result;
}

Value Value::integer(std::int64_t value) {
  Value result(Kind::integer);
  result.integer_ = value;
  return result;
}

Value Value::real(double value) {
  Value result(Kind::real);
  result.real_ = value;
  return result;
}

Value Value::string(std::string value) {
  if (value.size() > longest_text) fail("a text is longer than ", longest_text, " bytes");
  return {Kind::string, std::make_shared<const std::string>(std::move(value))};
}

Value Value::list(Values values) { return {Kind::list, make_list(std::move(values))}; }
Value Value::tuple(Values values) { return {Kind::tuple, make_list(std::move(values))}; }

Value Value::view(Values values, std::string shown, bool takes_index) {
  auto list = make_list(std::move(values));
  list->shown = std::move(shown);
  list->takes_index = takes_index;
  return {Kind::view, std::move(list)};
}

Value Value::iterator(Values values) {
  for (const Value& value : values) depth_inside(value);
  auto iterator = std::make_shared<Iterator>();
  iterator->values = std::move(values);
  return {Kind::iterator, std::move(iterator)};
}

Value Value::dict(std::vector<std::pair<Value, Value>> entries) {
  auto dict = std::make_shared<Dict>();
  for (const auto& entry : entries) {
    count_element(*dict, entry.first);
    count_element(*dict, entry.second);
  }
  dict->entries = std::move(entries);
  return {Kind::dict, std::move(dict)};
}

Value Value::names(std::shared_ptr<Names> names) { return {Kind::names, std::move(names)}; }

Value Value::callable(std::shared_ptr<const Callable> callable) {
  return {Kind::callable, std::move(callable)};
}

Value Value::loop(Loop& loop) {
  return {Kind::loop, std::shared_ptr<const void>(&loop, [](const void*) {})};
}

// These three are made of objects that are not const.
Iterator& Value::iterator() const {
  return *const_cast<Iterator*>(static_cast<const Iterator*>(object_.get()));
}
Names& Value::names() const {
  return *const_cast<Names*>(static_cast<const Names*>(object_.get()));
}
Loop& Value::loop() const { return *const_cast<Loop*>(static_cast<const Loop*>(object_.get())); }

Value Value::as_markup() const {
  Value result = *this;
  result.markup_ = true;
  return result;
}

const Value* Dict::find(const Value& key) const {
  for (const auto& entry : entries)
    if (equal(entry.first, key)) return &entry.second;
  return nullptr;
}

const Value* Dict::find(std::string_view key) const {
  for (const auto& entry : entries)
    if (entry.first.is(Kind::string) && entry.first.string() == key) return &entry.second;
  return nullptr;
}

const Value* Names::find(std::string_view name) const {
  for (const auto& entry : values)
    if (entry.first == name) return &entry.second;
  return nullptr;
}

void Names::set(const std::string& name, const Value& value) {
  if (!name.empty() && name.front() == '_')
    fail("a namespace takes no attribute with a leading underscore, but '", name, "' is set");
  depth_inside(value);
  for (auto& entry : values) {
    if (entry.first != name) continue;
    entry.second = value;
    return;
  }
  values.emplace_back(name, value);
}

void check_depth(const nlohmann::ordered_json& json) {
  struct Walk {
    static void down(const nlohmann::ordered_json& json, int depth) {
      if (!json.is_structured()) return;
      if (depth >= deepest_value) fail("JSON is nested deeper than ", deepest_value);
      for (const auto& item : json) down(item, depth + 1);
    }
  };
  Walk::down(json, 0);
}

Value from_json(const nlohmann::ordered_json& json) {
  // The depth of recursion is at most deepest_value: counted before it goes down.
  struct Reader {
    int depth = 0;
    Value read(const nlohmann::ordered_json& json) {
      switch (json.type()) {
        case nlohmann::ordered_json::value_t::null:
          return Value::none();
        case nlohmann::ordered_json::value_t::boolean:
          return Value::boolean(json.get<bool>());
        case nlohmann::ordered_json::value_t::number_unsigned: {
          const auto value = json.get<std::uint64_t>();
          if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
            fail("integers of more than 64 bits are not implemented");
          return Value::integer(static_cast<std::int64_t>(value));
        }
        case nlohmann::ordered_json::value_t::number_integer:
          return Value::integer(json.get<std::int64_t>());
        case nlohmann::ordered_json::value_t::number_float:
          // An integer of more than 64 bits becomes one, too, and would print otherwise.
          if (std::abs(json.get<double>()) >= 9223372036854775808.0)
            fail("numbers of 2^63 and more are not implemented");
          return Value::real(json.get<double>());
        case nlohmann::ordered_json::value_t::string:
          return Value::string(json.get_ref<const std::string&>());
        case nlohmann::ordered_json::value_t::array:
        case nlohmann::ordered_json::value_t::object:
          break;
        default:
          fail("a JSON value of type ", json.type_name(), "; expected what a JSON text has");
      }
      if (++depth > deepest_value) fail("JSON is nested deeper than ", deepest_value);
      Values values;
      std::vector<std::pair<Value, Value>> entries;
      for (const auto& item : json.items()) {
        if (json.is_array()) {
          values.push_back(read(item.value()));
        } else {
          entries.emplace_back(Value::string(item.key()), read(item.value()));
        }
      }
      --depth;
      return json.is_array() ? Value::list(std::move(values)) : Value::dict(std::move(entries));
    }
  };
  return Reader().read(json);
}

void set_entry(std::vector<std::pair<Value, Value>>& entries, const Value& key,
               const Value& value) {
  if (!is_hashable(key)) fail("a ", type_name(key), " can't be a key");
  for (auto& entry : entries) {
    if (!equal(entry.first, key)) continue;
    entry.second = value;
    return;
  }
  entries.emplace_back(key, value);
}

std::size_t weight_of(const Value& value) {
  switch (value.kind()) {
    case Kind::string:
      return 1 + value.string().size() / 64;
    case Kind::list:
    case Kind::tuple:
    case Kind::view:
      return value.list().weight;
    case Kind::dict:
      return value.dict().weight;
    case Kind::iterator:
      return 1 + value.iterator().values.size();
    default:
      return 1;
  }
}

bool truth(const Value& value) {
  switch (value.kind()) {
    case Kind::absent:
    case Kind::undefined:
    case Kind::none:
      return false;
    case Kind::boolean:
    case Kind::integer:
      return value.integer() != 0;
    case Kind::real:
      return value.real() != 0;
    case Kind::string:
      return !value.string().empty();
    case Kind::list:
    case Kind::tuple:
    case Kind::view:
      return !value.list().values.empty();
    case Kind::dict:
      return !value.dict().entries.empty();
    default:
      return true;
  }
}

bool equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::undefined:
    case Kind::none:
      return true;
    case Kind::string:
      return a.string() == b.string();
    case Kind::list:
    case Kind::tuple:
      return equal_all(a.list().values, b.list().values);
    case Kind::dict: {
      const auto& entries = a.dict().entries;
      return entries.size() == b.dict().entries.size() &&
             std::all_of(entries.begin(), entries.end(), [&](const auto& entry) {
               const Value* other = b.dict().find(entry.first);
               return other != nullptr && equal(entry.second, *other);
             });
    }
    case Kind::view:
      fail("comparing a ", type_name(a), " is not implemented");
    default:
      return a.is_same_object(b);
  }
}

bool less(const Value& a, const Value& b) {
  if (a.is(Kind::undefined)) fail(a.why());
  if (b.is(Kind::undefined)) fail(b.why());
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) < 0;
  if (a.is(Kind::string) && b.is(Kind::string)) return a.string() < b.string();
  if (a.kind() == b.kind() && (a.is(Kind::list) || a.is(Kind::tuple))) {
    const Values &x = a.list().values, &y = b.list().values;
    for (std::size_t i = 0; i < x.size() && i < y.size(); ++i)
      if (!equal(x[i], y[i])) return less(x[i], y[i]);
    return x.size() < y.size();
  }
  fail("a ", type_name(a), " and a ", type_name(b), " have no order");
}

}  // namespace ostrakon::texts::jinja
