// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/checkpoint/families/families.hpp>

#include <algorithm>
#include <ostrakon/base/text.hpp>
#include <ostrakon/checkpoint/families/keys.hpp>
#include <ostrakon/checkpoint/families/model_settings.hpp>

namespace ostrakon::checkpoint {

const std::vector<Family>& all_families() {
  using namespace families;
  static const std::vector<Family> all = [] {
    std::vector<Family> list;
    for (const auto& group : {gpt(), qwen(), llama(), gemma(), olmo(), cohere(), glm(), deepseek(),
                              gpt_oss(), neox(), others()})
      list.insert(list.end(), group.begin(), group.end());
    for (Family& family : list) {
      const std::vector<Key> common = keys::common();
      family.keys.insert(family.keys.end(), common.begin(), common.end());
      family.no_effect.insert(keys::without_effect().begin(), keys::without_effect().end());
    }
    return list;
  }();
  return all;
}

void read_keys(const Family& family, ConfigReading& reading) {
  reading.model = family.structure;
  reading.positions = reading.has(family.positions_key) ? reading.whole(family.positions_key)
                                                        : family.missing_positions;
  for (const Key& key : family.keys) key.read(reading);
  if (family.derive != nullptr) family.derive(reading.model);
  shorten_biases(reading.model);
}

const Family* family_named(const std::string& model_type) {
  for (const Family& family : all_families())
    if (family.model_type == model_type) return &family;
  return nullptr;
}

std::vector<std::string> deck_keys_of(const std::string& key) {
  for (const Family& family : all_families()) {
    if (key == family.positions_key) return {"training.sequence_length"};
    for (const Key& one : family.keys) {
      const auto found = one.deck_keys.find(key);
      if (found == one.deck_keys.end()) continue;
      std::vector<std::string> keys;
      for (const std::string& deck_key : found->second) keys.push_back("model." + deck_key);
      return keys;
    }
  }
  return {};
}

std::string all_model_types() {
  std::vector<std::string> types;
  for (const Family& family : all_families()) types.push_back(family.model_type);
  std::sort(types.begin(), types.end());
  std::string list;
  for (const std::string& type : types)
    list += text(list.empty() ? "" : &type == &types.back() ? " or " : ", ", type);
  return list;
}

TensorNames Family::names_for(const model::DecoderSettings& settings) const {
  TensorNames all = names;
  if (adapt != nullptr) adapt(settings, all);
  return all;
}

}  // namespace ostrakon::checkpoint
