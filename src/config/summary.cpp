// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <ostrakon/config/deck.hpp>
#include <ostrakon/config/keys.hpp>
#include <ostrakon/config/nearest.hpp>

namespace ostrakon::config {
namespace {

/// Whether a key of the section parallel may change anything beside the sharding that is chosen.
bool has_effect(const Settings& settings, const std::string& key) {
  const plan::Policy& policy = settings.parallel;
  if (policy.sharding == plan::Sharding::full) return true;
  // Updates prefetch gradients that a rank doesn't have, though it updates by them.
  if (key == "forward_prefetch") {
    const bool has_all = policy.shard_optimizer_over == plan::OptimizerGroup::world ||
                         settings.shard_group == mesh::world_group;
    return policy.sharding == plan::Sharding::none || !has_all;
  }
  return key != "reshard_after_forward" && key != "backward_prefetch" &&
         key != "in_flight_gathers" && key != "units";
}

/// Where a setting has its default, nobody expects anything of it.
bool is_given(const Settings& settings, const Key& key) {
  static const Settings defaults;
  return key.get(settings).shown() != key.get(defaults).shown();
}

std::string written(const Settings& settings, const Key& key) {
  const Value value = key.get(settings);
  return value.kind == Value::Kind::text ? value.text : value.shown();
}

/// A line, or nothing.
std::string without_effect(const Settings& settings, const Section& parallel) {
  std::vector<std::string> names;
  for (const Key& key : parallel.keys)
    if (is_given(settings, key) && !has_effect(settings, key.name)) names.push_back(key.name);
  if (names.empty()) return "";
  return "without effect with sharding " + written(settings, *find_key(parallel, "sharding")) +
         ": " + join(names, ", ", ", ") + "\n";
}

}  // namespace

std::string summary(const Settings& settings) {
  constexpr std::size_t indent = 15, longest = 96;
  std::string lines;
  for (const Section& section : sections()) {
    std::string line = "  " + section.name;
    line.resize(indent, ' ');
    for (const Key& key : section.keys) {
      const std::string shown = key.name + " " + key.get(settings).shown();
      if (line.size() > indent && line.size() + shown.size() + 2 > longest) {
        lines += line + ",\n";
        line.assign(indent, ' ');
      }
      line += (line.size() > indent ? ", " : "") + shown;
    }
    lines += line + "\n";
    if (section.name != "parallel") continue;
    const std::string more = without_effect(settings, section);
    if (!more.empty()) lines += std::string(indent, ' ') + more;
  }
  return lines;
}

std::vector<plan::Setting> strategy(const Settings& settings, plan::Accumulation accumulation) {
  Settings resolved = settings;
  resolved.parallel.accumulation = accumulation;
  std::vector<plan::Setting> chosen;
  for (const Key& key : find_section("parallel")->keys) {
    // Of the machine, and what there is one of.
    if (key.name == "ranks_per_node" || key.name == "reduction") continue;
    chosen.push_back({key.name, written(resolved, key),
                      has_effect(settings, key.name) || !is_given(settings, key)});
  }
  const Key& blocks = *find_key(*find_section("model"), "blocks_per_unit");
  chosen.push_back({blocks.name, written(settings, blocks)});
  return chosen;
}

}  // namespace ostrakon::config
