// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/config/policy_text.hpp>

#include <algorithm>
#include <cmath>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/names.hpp>
#include <ostrakon/config/nearest.hpp>
#include <ostrakon/config/rule_text.hpp>
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
constexpr Part parts_of_blocks[] = {{"attention", &model::Recompute::attention},
                                    {"norms", &model::Recompute::norms},
                                    {"mlp", &model::Recompute::mlp}};

/// Marks a part; returns false if it is unknown or already marked.
bool mark(model::Recompute& recompute, const std::string& name) {
  for (const Part& part : parts_of_blocks) {
    if (name != part.name || recompute.*part.is_recomputed) continue;
    recompute.*part.is_recomputed = true;
    return true;
  }
  return false;
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

std::optional<ActivationCheckpointing> read_checkpointing(const Value& value) {
  if (value.kind != Value::Kind::text) return std::nullopt;
  ActivationCheckpointing checkpointing;
  if (value.text == "none") return checkpointing;
  const std::vector<std::string> written = words(value.text);
  if (written.size() > 1 && written[0] == "selective") {
    for (std::size_t i = 1; i < written.size(); ++i) {
      if (!mark(checkpointing.within_blocks, written[i])) return std::nullopt;
    }
    return checkpointing;
  }
  std::optional<std::int64_t> every;
  if (value.text == "full") every = 1;
  if (written.size() == 2 && written[0] == "every")
    every = parse_scalar(written[1]).integer(1, most_units_apart);
  if (!every) return std::nullopt;
  checkpointing.units.every = static_cast<int>(*every);
  return checkpointing;
}

Value write_checkpointing(const ActivationCheckpointing& checkpointing) {
  const int every = checkpointing.units.every;
  std::string selective;
  for (const Part& part : parts_of_blocks) {
    if (checkpointing.within_blocks.*part.is_recomputed) selective += text(' ', part.name);
  }
  if (every > 0 && !selective.empty()) {
    throw std::logic_error("activation_checkpointing is of units and of parts of blocks");
  }
  if (!selective.empty()) return Value::of("selective" + selective);
  if (every > 1) return Value::of(text("every ", every));
  return Value::of(std::string(every == 1 ? "full" : "none"));
}

std::string expected_checkpointing() {
  std::vector<std::string> names;
  for (const Part& part : parts_of_blocks) names.push_back(part.name);
  return text("none, full, every N with N from 1 to ", most_units_apart,
              ", or selective followed by one or more of ", join(names, ", ", " and "));
}

}  // namespace ostrakon::config
