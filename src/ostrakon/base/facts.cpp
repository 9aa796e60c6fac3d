// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/base/facts.hpp>

#include <algorithm>
#include <charconv>
#include <ostrakon/base/error.hpp>

namespace ostrakon {
namespace {

constexpr const char* no_value = "nothing";

/// Appends a part with its length: "5:bytes".
void pack(const std::string& part, std::string& packed) {
  packed += std::to_string(part.size()) + ":" + part;
}

std::string unpack(const std::string& packed, std::size_t& at) {
  std::size_t bytes = 0;
  const char* const end = packed.data() + packed.size();
  const auto [stopped, failure] = std::from_chars(packed.data() + at, end, bytes);
  require(failure == std::errc() && stopped != end && *stopped == ':' &&
              bytes < static_cast<std::size_t>(end - stopped),
          "what another rank states can't be read");
  at = static_cast<std::size_t>(stopped + 1 - packed.data()) + bytes;
  return {stopped + 1, bytes};
}

const Fact* find(const Facts& facts, const std::string& name) {
  const auto found =
      std::find_if(facts.begin(), facts.end(), [&](const Fact& fact) { return fact.name == name; });
  return found == facts.end() ? nullptr : &*found;
}

}  // namespace

std::optional<FactDifference> first_difference(const Facts& ours, const Facts& theirs) {
  for (const Fact& fact : ours) {
    const Fact* const other = find(theirs, fact.name);
    if (other == nullptr) return FactDifference{fact.name, fact.value, no_value};
    if (other->value != fact.value) return FactDifference{fact.name, fact.value, other->value};
  }
  for (const Fact& fact : theirs)
    if (find(ours, fact.name) == nullptr) return FactDifference{fact.name, no_value, fact.value};
  return std::nullopt;
}

std::string pack_facts(const Facts& facts) {
  std::string packed;
  for (const Fact& fact : facts) {
    pack(fact.name, packed);
    pack(fact.value, packed);
  }
  return packed;
}

Facts unpack_facts(const std::string& packed) {
  Facts facts;
  for (std::size_t at = 0; at < packed.size();) {
    std::string name = unpack(packed, at);
    facts.push_back({std::move(name), unpack(packed, at)});
  }
  return facts;
}

}  // namespace ostrakon
