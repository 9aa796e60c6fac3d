// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/data/sample_source.hpp>

#include <string>

namespace ostrakon::data {
namespace {

bool is_chosen(const Fact& fact) { return fact.name.rfind(chosen_prefix, 0) == 0; }

}  // namespace

Facts facts_to_keep(SampleSource& source, std::uint64_t samples) {
  Facts kept = source.identity();
  for (const Fact& fact : source.choices(samples))
    kept.push_back({chosen_prefix + fact.name, fact.value});
  return kept;
}

Facts kept_identity(const Facts& kept) {
  Facts identity;
  for (const Fact& fact : kept)
    if (!is_chosen(fact)) identity.push_back(fact);
  return identity;
}

Facts kept_choices(const Facts& kept) {
  Facts choices;
  for (const Fact& fact : kept)
    if (is_chosen(fact))
      choices.push_back({fact.name.substr(std::string(chosen_prefix).size()), fact.value});
  return choices;
}

}  // namespace ostrakon::data
