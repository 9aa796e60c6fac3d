// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/config/policy_text.hpp>

#include <algorithm>
#include <cmath>
#include <optional>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/names.hpp>
#include <ostrakon/config/nearest.hpp>
#include <ostrakon/config/value.hpp>
#include <stdexcept>

namespace ostrakon::config {
namespace {

using plan::GatherLimit;
using plan::Hierarchical;
using plan::Reshard;

/// Names of all kinds except `partly`, which is written as a number.
constexpr Named<Reshard::Kind> reshard_names[] = {{Reshard::automatic, "default"},
                                                  {Reshard::always, "always"},
                                                  {Reshard::never, "never"},
                                                  {Reshard::end_of_step, "end_of_step"}};

/// Names of all kinds; by_size is `auto` only with the default bytes, else written as bytes.
constexpr Named<Hierarchical::Kind> hierarchical_names[] = {{Hierarchical::by_size, "auto"},
                                                            {Hierarchical::never, "never"},
                                                            {Hierarchical::always, "always"}};

struct ByteUnit {
  const char* name;
  std::int64_t bytes;
};
// Sorted, the largest first.
constexpr ByteUnit byte_units[] = {{"TiB", std::int64_t{1} << 40},
                                   {"TB", 1000000000000},
                                   {"GiB", std::int64_t{1} << 30},
                                   {"GB", 1000000000},
                                   {"MiB", 1 << 20},
                                   {"MB", 1000000},
                                   {"KiB", 1 << 10},
                                   {"kB", 1000},
                                   {"B", 1}};
constexpr std::int64_t most_bytes = std::int64_t{1} << 52;

std::optional<std::int64_t> read_bytes(const std::string& text) {
  const std::size_t end = std::min(text.find_first_not_of("0123456789."), text.size());
  const Value number = parse_scalar(text.substr(0, end));
  if (number.kind != Value::Kind::number) return std::nullopt;
  const std::string name = text.substr(end < text.size() && text[end] == ' ' ? end + 1 : end);
  for (const ByteUnit& unit : byte_units) {
    if (name != unit.name) continue;
    const double bytes = number.number * static_cast<double>(unit.bytes);
    if (!(bytes >= 1.0) || bytes > static_cast<double>(most_bytes)) return std::nullopt;
    return std::llround(bytes);
  }
  return std::nullopt;
}

std::string write_bytes(std::int64_t bytes) {
  const ByteUnit* unit = byte_units;
  while (bytes % unit->bytes != 0) ++unit;
  return text(bytes / unit->bytes, ' ', unit->name);
}

std::string names_of_byte_units() {
  std::vector<std::string> names;
  for (const ByteUnit& unit : byte_units) names.insert(names.begin(), unit.name);
  return join(names, ", ", " or ");
}

struct Part {
  const char* name;
  bool model::Recompute::*is_recomputed;
};
/// Parts that are kept unless they are named, and parts that are recomputed unless they are.
constexpr Part selective_parts[] = {{"attention", &model::Recompute::attention},
                                    {"norms", &model::Recompute::norms},
                                    {"mlp", &model::Recompute::mlp}};
constexpr Part kept_parts[] = {{"norms", &model::Recompute::norm_outputs},
                               {"activations", &model::Recompute::activations}};

/// Reads names of parts, each of them once, to which `recompute` then does the opposite of what it
/// does by default; returns false for any other text.
template <std::size_t count>
bool read_parts(const Part (&parts)[count], const std::vector<std::string>& names,
                model::Recompute& recompute) {
  const model::Recompute before;
  for (std::size_t i = 1; i < names.size(); ++i) {
    const Part* part = std::find_if(std::begin(parts), std::end(parts),
                                    [&](const Part& one) { return names[i] == one.name; });
    if (part == std::end(parts)) return false;
    bool& is_recomputed = recompute.*part->is_recomputed;
    if (is_recomputed != before.*part->is_recomputed) return false;
    is_recomputed = !is_recomputed;
  }
  return names.size() > 1;
}

/// Writes the names of parts to which `recompute` does not do what it does by default, each after a
/// blank.
template <std::size_t count>
std::string write_parts(const Part (&parts)[count], const model::Recompute& recompute) {
  const model::Recompute before;
  std::string names;
  for (const Part& part : parts)
    if (recompute.*part.is_recomputed != before.*part.is_recomputed) names += text(' ', part.name);
  return names;
}

template <std::size_t count>
std::string names_of(const Part (&parts)[count]) {
  std::vector<std::string> names;
  for (const Part& part : parts) names.push_back(part.name);
  return join(names, ", ", " and ");
}

}  // namespace

std::optional<Reshard> read_reshard(const Value& value) {
  Reshard reshard;
  if (const auto ranks = value.integer(2, most_ranks)) {
    reshard.kind = Reshard::partly;
    reshard.ranks = static_cast<int>(*ranks);
    return reshard;
  }
  if (value.kind != Value::Kind::text) return std::nullopt;
  const std::optional<Reshard::Kind> kind = find_named(reshard_names, value.text);
  if (!kind) return std::nullopt;
  reshard.kind = *kind;
  return reshard;
}

Value write_reshard(const Reshard& reshard) {
  if (reshard.kind == Reshard::partly) return Value::of(static_cast<double>(reshard.ranks));
  for (const Named<Reshard::Kind>& one : reshard_names) {
    if (one.value == reshard.kind) return Value::of(std::string(one.name));
  }
  throw UnnamedValue("reshard_after_forward", unnamed_text(reshard.kind));
}

std::string expected_reshard() {
  return text("default, always, never, end_of_step or an integer from 2 to ", most_ranks);
}

std::optional<GatherLimit> read_gather_limit(const Value& value) {
  GatherLimit limit;
  if (value.kind == Value::Kind::text && value.text == "unlimited") return limit;
  if (const auto units = value.integer(1, most_units_gathered)) {
    limit.units = *units;
    return limit;
  }
  if (value.kind != Value::Kind::text) return std::nullopt;
  const std::optional<std::int64_t> bytes = read_bytes(value.text);
  if (!bytes) return std::nullopt;
  limit.bytes = *bytes;
  return limit;
}

Value write_gather_limit(const GatherLimit& limit) {
  if (limit.units > 0 && limit.bytes > 0) {
    throw std::logic_error("in_flight_gathers has a bound in units and one in bytes");
  }
  if (limit.units > 0) return Value::of(static_cast<double>(limit.units));
  return Value::of(limit.bytes > 0 ? write_bytes(limit.bytes) : std::string("unlimited"));
}

std::string expected_gather_limit() {
  return text("unlimited, an integer from 1 to ", most_units_gathered, " (units), or bytes up to ",
              write_bytes(most_bytes), " in ", names_of_byte_units());
}

std::optional<Hierarchical> read_hierarchical(const Value& value) {
  if (value.kind != Value::Kind::text) return std::nullopt;
  for (const Named<Hierarchical::Kind>& named : hierarchical_names)
    if (value.text == named.name) return Hierarchical{named.value};
  const std::optional<std::int64_t> bytes = read_bytes(value.text);
  if (!bytes) return std::nullopt;
  return Hierarchical{Hierarchical::by_size, *bytes};
}

Value write_hierarchical(const Hierarchical& hierarchical) {
  const bool is_auto = hierarchical == Hierarchical();
  return Value::of(hierarchical.kind == Hierarchical::by_size && !is_auto
                       ? write_bytes(hierarchical.bytes)
                       : name_in(hierarchical_names, hierarchical.kind));
}

std::string expected_hierarchical() {
  return text("auto, never, always, or bytes up to ", write_bytes(most_bytes), " in ",
              names_of_byte_units());
}

std::optional<CheckpointingChoice> read_checkpointing(const Value& value) {
  if (value.kind != Value::Kind::text) return std::nullopt;
  CheckpointingChoice checkpointing;
  if (value.text == "none") return checkpointing;
  checkpointing.is_chosen = value.text == "auto";
  if (checkpointing.is_chosen) return checkpointing;
  const std::vector<std::string> written = words(value.text);
  const std::string first = written.empty() ? "" : written[0];
  if (first == "selective" || first == "keep") {
    const bool is_read = first == "keep"
                             ? read_parts(kept_parts, written, checkpointing.within_blocks)
                             : read_parts(selective_parts, written, checkpointing.within_blocks);
    if (!is_read) return std::nullopt;
    return checkpointing;
  }
  std::optional<std::int64_t> every;
  if (value.text == "full") every = 1;
  if (written.size() == 2 && first == "every")
    every = parse_scalar(written[1]).integer(1, most_units_apart);
  if (!every) return std::nullopt;
  checkpointing.units.every = static_cast<int>(*every);
  return checkpointing;
}

Value write_checkpointing(const CheckpointingChoice& checkpointing) {
  if (checkpointing.is_chosen) return Value::of(std::string("auto"));
  const int every = checkpointing.units.every;
  const std::string selective = write_parts(selective_parts, checkpointing.within_blocks);
  const std::string kept = write_parts(kept_parts, checkpointing.within_blocks);
  if ((every > 0) + !selective.empty() + !kept.empty() > 1) {
    throw std::logic_error(
        "activation_checkpointing is of units, of parts of blocks, or of parts that are kept");
  }
  if (!selective.empty()) return Value::of("selective" + selective);
  if (!kept.empty()) return Value::of("keep" + kept);
  if (every > 1) return Value::of(text("every ", every));
  return Value::of(std::string(every == 1 ? "full" : "none"));
}

std::string expected_checkpointing() {
  return text("none, full, every N with N from 1 to ", most_units_apart,
              ", selective followed by one or more of ", names_of(selective_parts),
              ", keep followed by one or more of ", names_of(kept_parts), ", or auto");
}

std::optional<std::int64_t> read_memory_limit(const Value& value) {
  if (value.kind != Value::Kind::text) return std::nullopt;
  return value.text == "auto" ? 0 : read_bytes(value.text);
}

Value write_memory_limit(std::int64_t bytes) {
  return Value::of(bytes > 0 ? write_bytes(bytes) : std::string("auto"));
}

std::string expected_memory_limit() {
  return text("auto, or bytes up to ", write_bytes(most_bytes), " in ", names_of_byte_units());
}

namespace {

using optim::ParameterRule;
using plan::Prefetch;
using plan::UnitRule;

std::string trim(const std::string& text) {
  const std::size_t first = text.find_first_not_of(' ');
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(' ') + 1 - first);
}

/// Returns the trimmed pieces between separators; one piece for a text without separators.
std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> pieces;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    pieces.push_back(trim(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return pieces;
}

std::optional<Prefetch> read_prefetch(const std::string& text) {
  Prefetch prefetch;
  if (const auto depth = parse_scalar(text).integer(0, most_units_ahead)) {
    prefetch.depth = static_cast<int>(*depth);
    return prefetch;
  }
  prefetch.units = words(text);
  for (const std::string& name : prefetch.units) {
    // A name may not begin like a number, so that an invalid number is not taken for a name.
    if (name.find_first_of("0123456789+-.") == 0) return std::nullopt;
  }
  if (prefetch.units.empty()) return std::nullopt;
  return prefetch;
}

std::string write_prefetch(const Prefetch& prefetch) {
  return prefetch.units.empty() ? std::to_string(prefetch.depth) : join(prefetch.units, " ", " ");
}

/// A setting of a rule. `set` returns false for a value that is not `expected`; `get` returns
/// nothing if the rule does not set it.
template <class Rule>
struct Setting {
  std::string name;
  std::string expected;
  bool (*set)(Rule&, const std::string& value);
  std::optional<std::string> (*get)(const Rule&);
};

template <std::optional<Prefetch> UnitRule::*member>
Setting<UnitRule> prefetch_setting(const char* name) {
  return {
      name,
      text("an integer from 0 to ", most_units_ahead, ", or names of units with blanks between"),
      [](UnitRule& rule, const std::string& value) {
        rule.*member = read_prefetch(value);
        return (rule.*member).has_value();
      },
      [](const UnitRule& rule) {
        const std::optional<Prefetch>& prefetch = rule.*member;
        return prefetch ? std::optional(write_prefetch(*prefetch)) : std::nullopt;
      }};
}

template <std::optional<double> ParameterRule::*member>
Setting<ParameterRule> number_setting(const char* name) {
  return {name, "a number from 0 to 1e30",
          [](ParameterRule& rule, const std::string& value) {
            const Value read = parse_scalar(value);
            if (read.kind != Value::Kind::number || !(read.number >= 0.0) || read.number > 1e30)
              return false;
            rule.*member = read.number;
            return true;
          },
          [](const ParameterRule& rule) {
            const std::optional<double>& number = rule.*member;
            return number ? std::optional(format_number(*number)) : std::nullopt;
          }};
}

/// `other` is the name of the opposite setting.
template <bool frozen>
Setting<ParameterRule> freezing_setting(const char* name, const char* other) {
  return {name, text("nothing after it, and not ", other, " in the same rule"),
          [](ParameterRule& rule, const std::string& value) {
            if (!value.empty() || rule.frozen) return false;
            rule.frozen = frozen;
            return true;
          },
          [](const ParameterRule& rule) {
            return rule.frozen == frozen ? std::optional(std::string()) : std::nullopt;
          }};
}

template <class Rule>
const std::vector<Setting<Rule>>& settings_of();

template <>
const std::vector<Setting<UnitRule>>& settings_of() {
  static const std::vector<Setting<UnitRule>> table = {
      {"reshard_after_forward", expected_reshard(),
       [](UnitRule& rule, const std::string& value) {
         rule.reshard_after_forward = read_reshard(parse_scalar(value));
         return rule.reshard_after_forward.has_value();
       },
       [](const UnitRule& rule) -> std::optional<std::string> {
         if (!rule.reshard_after_forward) return std::nullopt;
         const Value value = write_reshard(*rule.reshard_after_forward);
         return value.kind == Value::Kind::text ? value.text : value.shown();
       }},
      prefetch_setting<&UnitRule::forward_prefetch>("forward_prefetch"),
      prefetch_setting<&UnitRule::backward_prefetch>("backward_prefetch")};
  return table;
}

template <>
const std::vector<Setting<ParameterRule>>& settings_of() {
  static const std::vector<Setting<ParameterRule>> table = {
      freezing_setting<true>("frozen", "trained"), freezing_setting<false>("trained", "frozen"),
      number_setting<&ParameterRule::learning_rate>("learning_rate"),
      number_setting<&ParameterRule::weight_decay>("weight_decay")};
  return table;
}

template <class Rule>
std::vector<std::string> setting_names() {
  std::vector<std::string> names;
  for (const Setting<Rule>& setting : settings_of<Rule>()) names.push_back(setting.name);
  return names;
}

template <class Rule>
std::string list_settings() {
  return "the settings are " + join(setting_names<Rule>(), ", ", " and ");
}

/// `written` is "SETTING VALUE"; `place` begins messages of errors.
template <class Rule>
void read_setting(Rule& rule, const std::string& written, const std::string& place) {
  require(!written.empty(), place, "expected SETTING VALUE after the colon and each comma; ",
          list_settings<Rule>());
  const std::string name = words(written).front();
  const std::string value = trim(written.substr(name.size()));
  for (const Setting<Rule>& setting : settings_of<Rule>()) {
    if (setting.name != name) continue;
    require(!setting.get(rule), place, name, " is given twice");
    require(setting.set(rule, value), place, name,
            value.empty() ? "" : " = " + parse_scalar(value).shown(), ": expected ",
            setting.expected);
    return;
  }
  std::string near = nearest(name, setting_names<Rule>());
  if (near.empty()) near = join(with_parts_of(name, setting_names<Rule>()), ", ", " or ");
  throw Error(text(place, Value::of(name).shown(), ": no such setting; ",
                   near.empty() ? list_settings<Rule>() : "did you mean " + near + "?"));
}

/// Refuses a rule for one unit that prefetches itself. A rule for many units may: each of them may
/// be among the units that the others prefetch.
void refuse_itself(const std::string& unit, const std::optional<Prefetch>& prefetch,
                   const std::string& place) {
  if (!prefetch) return;
  const std::vector<std::string>& units = prefetch->units;
  require(std::find(units.begin(), units.end(), unit) == units.end(), place, " names ", unit,
          " itself, which is gathered in any case; expected other units");
}

/// Calls check(rule, the beginning of its message) for each rule.
template <class Rule, class Check>
std::vector<Rule> read_rules(const std::string& text_of_rules, const Check& check) {
  std::vector<Rule> rules;
  for (const std::string& written : split(text_of_rules, ';')) {
    if (written.empty()) continue;
    const std::string place = text("rule ", Value::of(written).shown(), ": ");
    const std::vector<std::string> parts = split(written, ':');
    require(parts.size() > 1, place,
            "expected PATTERN: SETTING VALUE, SETTING VALUE ..., found no ':'");
    require(parts.size() == 2, place, "expected one ':', after the pattern; ';' separates rules");
    require(words(parts[0]).size() == 1, place,
            "expected one pattern before the colon, such as block.*");
    Rule rule;
    rule.pattern = parts[0];
    for (const std::string& setting : split(parts[1], ',')) read_setting(rule, setting, place);
    check(rule, place);
    rules.push_back(rule);
  }
  return rules;
}

template <class Rule>
std::string write_rules(const std::vector<Rule>& rules) {
  std::string out;
  for (const Rule& rule : rules) {
    std::string line;
    for (const Setting<Rule>& setting : settings_of<Rule>()) {
      const std::optional<std::string> value = setting.get(rule);
      if (!value) continue;
      line += text(line.empty() ? ": " : ", ", setting.name, value->empty() ? "" : " ", *value);
    }
    if (!line.empty()) out += text(out.empty() ? "" : "; ", rule.pattern, line);
  }
  return out;
}

}  // namespace

std::vector<std::string> words(const std::string& text) {
  std::vector<std::string> found;
  for (std::size_t begin = text.find_first_not_of(' '); begin != std::string::npos;) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    found.push_back(text.substr(begin, end - begin));
    begin = text.find_first_not_of(' ', end);
  }
  return found;
}

std::vector<UnitRule> read_unit_rules(const std::string& text) {
  return read_rules<UnitRule>(text, [](const UnitRule& rule, const std::string& place) {
    refuse_itself(rule.pattern, rule.forward_prefetch, place + "forward_prefetch");
    refuse_itself(rule.pattern, rule.backward_prefetch, place + "backward_prefetch");
  });
}

std::string write_unit_rules(const std::vector<UnitRule>& rules) { return write_rules(rules); }

std::vector<ParameterRule> read_parameter_rules(const std::string& text) {
  return read_rules<ParameterRule>(text, [](const ParameterRule&, const std::string&) {});
}

std::string write_parameter_rules(const std::vector<ParameterRule>& rules) {
  return write_rules(rules);
}

}  // namespace ostrakon::config
