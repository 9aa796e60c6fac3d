// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/names.hpp>
#include <ostrakon/config/keys.hpp>
#include <ostrakon/config/nearest.hpp>
#include <ostrakon/config/value.hpp>
#include <ostrakon/model/layer_pattern.hpp>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

// Kinds of deck keys: each function makes a Key of one kind. Only keys*.cpp include this file.

namespace ostrakon::config {

/// `field` is a generic lambda that returns a field of a Settings or const Settings.
template <class Field>
Key integer(const std::string& name, Field field, std::int64_t least, std::int64_t most,
            const std::string& meaning) {
  Key key(name, meaning);
  key.expected = most == largest_integer ? text("an integer >= ", least)
                                         : text("an integer from ", least, " to ", most);
  key.limits = text(">= ", least);
  key.is_unbounded_integer = most == largest_integer;
  key.set = [=](Settings& settings, const Value& value) {
    const std::optional<std::int64_t> number = value.integer(least, most);
    if (!number) return false;
    field(settings) = static_cast<std::decay_t<decltype(field(settings))>>(*number);
    return true;
  };
  key.get = [=](const Settings& settings) {
    return Value::of(static_cast<double>(field(settings)));
  };
  return key;
}

template <class Field>
Key integer(const std::string& name, Field field, std::int64_t least, const std::string& meaning) {
  return integer(name, field, least, largest_integer, meaning);
}

/// A range of values that a key takes, and its description.
struct Range {
  const char* limits;
  bool (*contains)(double);
};
inline const Range not_negative = {">= 0", [](double x) { return x >= 0.0; }};
inline const Range share = {"from 0 to 1", [](double x) { return x >= 0.0 && x <= 1.0; }};
// Decks hold doubles, but most arithmetic is in floats. Within these bounds no float becomes
// infinite; nor does one that must not be zero become zero or subnormal (below 1.18e-38), which
// some processors flush to zero.
inline const Range up_to_1e30 = {"from 0 to 1e30", [](double x) { return x >= 0.0 && x <= 1e30; }};
inline const Range positive = {"from 1e-30 to 1e30",
                               [](double x) { return x >= 1e-30 && x <= 1e30; }};
inline const Range small = {"from 1.2e-38 to 1", [](double x) { return x >= 1.2e-38 && x <= 1.0; }};
inline const Range rotary_base = {"from 1 to 1e12", [](double x) { return x >= 1.0 && x <= 1e12; }};
inline const Range below_one = {">= 0 and < 1", [](double x) { return x >= 0.0 && x < 1.0; }};

template <class Field>
Key number(const std::string& name, Field field, const Range& range, const std::string& meaning) {
  Key key(name, meaning);
  key.expected = text("a number ", range.limits);
  key.limits = range.limits;
  key.set = [=](Settings& settings, const Value& value) {
    if (value.kind != Value::Kind::number || !std::isfinite(value.number) ||
        !range.contains(value.number)) {
      return false;
    }
    field(settings) = value.number;
    return true;
  };
  key.get = [=](const Settings& settings) { return Value::of(field(settings)); };
  return key;
}

/// A key of a power of two; `least` is 0 or 1.
template <class Field>
Key power_of_two(const std::string& name, Field field, std::int64_t least,
                 const std::string& meaning) {
  Key key(name, meaning);
  constexpr std::int64_t largest = std::int64_t{1} << 30;
  key.expected = text(least == 0 ? "0 or " : "", "a power of two up to ", largest);
  key.limits = least == 0 ? "0 | power of two" : "power of two";
  key.set = [=](Settings& settings, const Value& value) {
    const std::optional<std::int64_t> number = value.integer(least, largest);
    if (!number || (*number & (*number - 1)) != 0) return false;
    field(settings) = *number;
    return true;
  };
  key.get = [=](const Settings& settings) {
    return Value::of(static_cast<double>(field(settings)));
  };
  return key;
}

/// A number, or a word that stands for 0.
template <class Field>
Key named_number(const std::string& name, Field field, const std::string& word, const Range& range,
                 const std::string& meaning) {
  Key key = number(name, field, range, meaning);
  key.expected = text(word, " or ", key.expected);
  key.limits = text(word, " | ", key.limits);
  key.set = [=, set = key.set](Settings& settings, const Value& value) {
    if (value.kind != Value::Kind::text || value.text != word) return set(settings, value);
    field(settings) = 0.0;
    return true;
  };
  key.get = [=, get = key.get](const Settings& settings) {
    return field(settings) == 0.0 ? Value::of(word) : get(settings);
  };
  return key;
}

/// Numbers, separated by commas; none where the text is empty.
template <class Field>
Key numbers(const std::string& name, Field field, const Range& range, const std::string& meaning) {
  Key key(name, meaning);
  key.expected = text("numbers ", range.limits, ", separated by commas, as text");
  key.limits = "numbers";
  key.is_text = true;
  key.set = [=](Settings& settings, const Value& value) {
    if (value.kind != Value::Kind::text) return false;
    std::vector<double> all;
    for (std::size_t at = 0; at < value.text.size();) {
      const std::size_t end = std::min(value.text.find(',', at), value.text.size());
      const std::size_t begin = std::min(value.text.find_first_not_of(' ', at), end);
      const Value one = parse_scalar(value.text.substr(begin, end - begin));
      if (one.kind != Value::Kind::number || !std::isfinite(one.number) ||
          !range.contains(one.number))
        return false;
      all.push_back(one.number);
      at = end + 1;
    }
    field(settings) = std::move(all);
    return true;
  };
  key.get = [=](const Settings& settings) {
    std::string all;
    for (const double one : field(settings)) all += (all.empty() ? "" : ", ") + format_number(one);
    return Value::of(all);
  };
  return key;
}

template <class Field>
Key boolean(const std::string& name, Field field, const std::string& meaning) {
  Key key(name, meaning);
  key.expected = "true or false";
  key.set = [=](Settings& settings, const Value& value) {
    if (value.kind != Value::Kind::boolean) return false;
    field(settings) = value.boolean;
    return true;
  };
  key.get = [=](const Settings& settings) { return Value::of(field(settings)); };
  return key;
}

/// A key of an optional field: true, false or auto.
template <class Field>
Key boolean_or_auto(const std::string& name, Field field, const std::string& meaning) {
  Key key(name, meaning);
  key.expected = "auto, true or false";
  key.limits = "auto | true | false";
  key.set = [=](Settings& settings, const Value& value) {
    const bool is_auto = value.kind == Value::Kind::text && value.text == "auto";
    if (!is_auto && value.kind != Value::Kind::boolean) return false;
    field(settings) = is_auto ? std::nullopt : std::optional(value.boolean);
    return true;
  };
  key.get = [=](const Settings& settings) {
    return field(settings) ? Value::of(*field(settings)) : Value::of(std::string("auto"));
  };
  return key;
}

/// Throws Error, naming the byte, for a control character: file systems allow them, but they break
/// lines of output.
void require_no_control_characters(const std::string& text);

/// Replaces line breaks by spaces: rules may be given on several lines.
std::string on_one_line(std::string rules);

/// Joins the files of a list by ';'. Throws Error for one with a ';' in it.
std::string joined_files(const std::vector<std::string>& files);

template <class Field>
Key path(const std::string& name, Field field, bool may_be_empty, const std::string& meaning) {
  Key key(name, meaning);
  key.expected = may_be_empty ? "a path as text (numbers and yes/no need quotes)"
                              : "a path that is not empty (numbers and yes/no need quotes)";
  key.set = [=](Settings& settings, const Value& value) {
    if (value.kind != Value::Kind::text) return false;
    if (value.text.empty() && !may_be_empty) return false;
    require_no_control_characters(value.text);
    field(settings) = value.text;
    return true;
  };
  key.get = [=](const Settings& settings) { return Value::of(field(settings)); };
  key.is_text = true;
  key.change_paths = [=](Settings& settings, const std::function<void(std::string&)>& change) {
    if (!field(settings).empty()) change(field(settings));
  };
  return key;
}

/// A key of one file, or of several with weights: data::read_files. Also takes a list.
template <class Field>
Key files(const std::string& name, Field field, const std::string& meaning) {
  Key key(name, meaning);
  key.expected =
      "a path as text (numbers and yes/no need quotes), or files \"WEIGHT PATH; WEIGHT PATH\", as "
      "text or a list";
  key.is_text = true;
  key.set = [=](Settings& settings, const Value& value) {
    const bool is_list = value.kind == Value::Kind::list && !value.items.empty();
    if (!is_list && value.kind != Value::Kind::text) return false;
    std::string text = is_list ? joined_files(value.items) : value.text;
    if (text.find(';') != std::string::npos) text = on_one_line(text);
    require_no_control_characters(text);
    data::read_files(text);
    field(settings) = text;
    return true;
  };
  key.get = [=](const Settings& settings) { return Value::of(field(settings)); };
  key.change_paths = [=](Settings& settings, const std::function<void(std::string&)>& change) {
    std::vector<data::WeightedFile> all = data::read_files(field(settings));
    for (data::WeightedFile& file : all) change(file.path);
    field(settings) = data::write_files(all);
  };
  return key;
}

/// A key of a file or folder that a run writes.
template <class Field>
Key written_path(const std::string& name, Field field, const std::string& meaning) {
  Key key = path(name, field, false, meaning);
  key.is_written = true;
  return key;
}

template <class Field, class Choice>
Key choice(const std::string& name, Field field, const std::vector<Named<Choice>>& choices,
           const std::string& meaning) {
  std::vector<std::string> names;
  for (const auto& one : choices) names.push_back(one.name);
  Key key(name, meaning);
  key.expected = join(names, ", ", " or ");
  key.limits = join(names, " | ", " | ");
  key.set = [=](Settings& settings, const Value& value) {
    if (value.kind != Value::Kind::text) return false;
    for (const auto& one : choices) {
      if (one.name != value.text) continue;
      field(settings) = one.value;
      return true;
    }
    return false;
  };
  key.get = [=](const Settings& settings) {
    for (const auto& one : choices) {
      if (one.value == field(settings)) return Value::of(std::string(one.name));
    }
    throw UnnamedValue(name, unnamed_text(field(settings)));
  };
  return key;
}

/// A key that takes the names in `names`.
template <class Field, class Enum, std::size_t count>
Key choice(const std::string& name, Field field, const Named<Enum> (&names)[count],
           const std::string& meaning) {
  return choice(name, field, std::vector<Named<Enum>>(std::begin(names), std::end(names)), meaning);
}

constexpr std::int64_t most_layers = 100000;

/// What a key of layers takes, for its meaning and for messages.
constexpr const char* meaning_of_layers =
    ": \"all\", \"none\", \"every 6th\", \"first 3\", \"all but\" these, or layers from 0 on as "
    "\"0, 4-7\"";
constexpr const char* expected_layers =
    "all, none, every 6th, first 3, all but every 6th, all but first 3, or layers such as \"0, "
    "4-7\"";

/// Returns nothing if the value is no pattern of layers.
inline std::optional<model::LayerPattern> read_layers(const Value& value) {
  const bool is_layer = value.integer(0, most_layers).has_value();
  if (value.kind != Value::Kind::text && !is_layer) return std::nullopt;
  return model::LayerPattern::parse(is_layer ? value.shown() : value.text);
}

/// A key whose values `read` converts to the type of its field, or to nothing where they are wrong,
/// and `write` converts back.
template <class Field, class Read, class Write>
Key converted(const std::string& name, Field field, Read read, Write write,
              const std::string& expected, const std::string& limits, const std::string& meaning) {
  Key key(name, meaning);
  key.expected = expected;
  key.limits = limits;
  key.set = [=](Settings& settings, const Value& value) {
    const auto found = read(value);
    if (found) field(settings) = *found;
    return found.has_value();
  };
  key.get = [=](const Settings& settings) { return write(field(settings)); };
  return key;
}

/// A key of layers that have something.
template <class Field>
Key layer_pattern(const std::string& name, Field field, const std::string& meaning) {
  const auto write = [](const model::LayerPattern& layers) { return Value::of(layers.text()); };
  return converted(name, field, read_layers, write, expected_layers, "a pattern of layers",
                   meaning + meaning_of_layers);
}

/// A key of an optional pattern: a pattern, or auto.
template <class Field>
Key layer_pattern_or_auto(const std::string& name, Field field, const std::string& meaning) {
  Key key(name, meaning + meaning_of_layers);
  key.expected = text("auto, ", expected_layers);
  key.limits = "auto | a pattern of layers";
  key.set = [=](Settings& settings, const Value& value) {
    const bool is_auto = value.kind == Value::Kind::text && value.text == "auto";
    const auto pattern = is_auto ? std::nullopt : read_layers(value);
    if (is_auto || pattern) field(settings) = pattern;
    return is_auto || pattern;
  };
  key.get = [=](const Settings& settings) {
    return Value::of(field(settings) ? field(settings)->text() : std::string("auto"));
  };
  return key;
}

using NamedIntegers = std::vector<std::pair<std::string, int>>;

/// An integer key with names for some values outside of its bounds.
template <class Field>
Key named_integer(const std::string& name, Field field, const NamedIntegers& named,
                  std::int64_t least, std::int64_t most, const std::string& meaning) {
  std::vector<std::string> names;
  for (const auto& one : named) names.push_back(one.first);
  Key key(name, meaning);
  key.expected = text(join(names, ", ", ", "), " or an integer from ", least, " to ", most);
  key.limits = text(join(names, " | ", " | "), " | >= ", least);
  key.set = [=](Settings& settings, const Value& value) {
    using Type = std::decay_t<decltype(field(settings))>;
    if (const auto number = value.integer(least, most)) {
      field(settings) = static_cast<Type>(*number);
      return true;
    }
    for (const auto& one : named) {
      if (value.kind != Value::Kind::text || value.text != one.first) continue;
      field(settings) = one.second;
      return true;
    }
    return false;
  };
  key.get = [=](const Settings& settings) {
    for (const auto& one : named) {
      if (one.second == field(settings)) return Value::of(one.first);
    }
    return Value::of(static_cast<double>(field(settings)));
  };
  return key;
}

/// A key that takes only one value in this version.
Key only(const std::string& name, const std::string& accepted, const std::string& meaning);

/// A key of rules, with functions to read and write them.
template <class Field, class Rules>
Key rules(const std::string& name, Field field, Rules (*read)(const std::string&),
          std::string (*write)(const Rules&), const std::string& meaning) {
  Key key(name, meaning);
  key.expected = "rules PATTERN: SETTING VALUE, SETTING VALUE ..., separated by ';', as text";
  key.is_text = true;
  key.set = [=](Settings& settings, const Value& value) {
    const std::string text = on_one_line(value.text);
    if (value.kind != Value::Kind::text) return false;
    require_no_control_characters(text);
    field(settings) = read(text);
    return true;
  };
  key.get = [=](const Settings& settings) { return Value::of(write(field(settings))); };
  return key;
}

}  // namespace ostrakon::config
