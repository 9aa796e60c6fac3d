// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/config/keys.hpp>

#include <ostrakon/base/format.hpp>
#include <ostrakon/checkpoint/families/family.hpp>
#include <ostrakon/config/nearest.hpp>

namespace ostrakon::config {
namespace {

std::vector<std::string> section_names() {
  std::vector<std::string> names;
  for (const Section& section : sections()) names.push_back(section.name);
  return names;
}

std::vector<std::string> key_names(const Section& section) {
  std::vector<std::string> names;
  for (const Key& key : section.keys) names.push_back(key.name);
  return names;
}

/// Returns "section.key" of the key with this name in any section; empty if there is none.
std::string find_anywhere(const std::string& name) {
  for (const Section& section : sections()) {
    if (find_key(section, name) != nullptr) return section.name + "." + name;
  }
  return "";
}

/// Suggests the key whose name is nearest to `name`.
std::string find_near(const std::string& name) {
  std::vector<std::string> names;
  for (const Section& section : sections()) {
    for (const Key& key : section.keys) names.push_back(key.name);
  }
  return find_anywhere(nearest(name, names));
}

/// Returns the keys with the meaning of a name in config.json of Hugging Face's models.
std::string name_here(const std::string& name) {
  return join(checkpoint::deck_keys_of(name), ", ", " and ");
}

std::string did_you_mean(const std::string& what) { return "; did you mean " + what + "?"; }

}  // namespace

const std::vector<Section>& sections() {
  static const std::vector<Section> table = {
      model_section(),    lora_section(),       data_section(),   training_section(),
      parallel_section(), precision_section(),  memory_section(), optimizer_section(),
      schedule_section(), checkpoint_section(), output_section(), runtime_section()};
  return table;
}

const Section* find_section(const std::string& name) {
  for (const Section& section : sections()) {
    if (section.name == name) return &section;
  }
  return nullptr;
}

const Key* find_key(const Section& section, const std::string& name) {
  for (const Key& key : section.keys) {
    if (key.name == name) return &key;
  }
  return nullptr;
}

std::string suggest_key(const std::string& section_name, const std::string& name) {
  const Section* section = find_section(section_name);
  if (section == nullptr) section = find_section(nearest(section_name, section_names()));
  if (section != nullptr) {
    const std::string near = nearest(name, key_names(*section));
    if (near == name) return did_you_mean(section->name + "." + name);
    const std::string elsewhere = find_anywhere(name);
    if (!elsewhere.empty()) return did_you_mean(elsewhere);
    const std::string ours = name_here(name);
    if (!ours.empty()) return did_you_mean(ours);
    if (!near.empty()) return did_you_mean(section->name + "." + near);
    std::vector<std::string> alike = with_parts_of(name, key_names(*section));
    for (std::string& key : alike) key = section->name + "." + key;
    if (!alike.empty()) return did_you_mean(join(alike, ", ", " or "));
  }
  const std::string anywhere = find_near(name);
  if (!anywhere.empty()) return did_you_mean(anywhere);
  if (section == nullptr) return "; the sections are " + join(section_names(), ", ", " and ");
  constexpr std::size_t most_listed = 40;
  if (section->keys.size() > most_listed)
    return "; ostrakon-train --print-defaults lists the keys of " + section->name;
  return "; the keys of " + section->name + " are " + join(key_names(*section), ", ", " and ");
}

std::string suggest_section(const std::string& name) {
  const std::string near = nearest(name, section_names());
  const std::string key = find_anywhere(name);
  if (!key.empty()) return did_you_mean(key);
  const std::string ours = name_here(name);
  if (!ours.empty()) return did_you_mean(ours);
  if (!near.empty()) return did_you_mean(near);
  const std::string near_key = find_near(name);
  if (!near_key.empty()) return did_you_mean(near_key);
  return "; the sections are " + join(section_names(), ", ", " and ");
}

}  // namespace ostrakon::config
