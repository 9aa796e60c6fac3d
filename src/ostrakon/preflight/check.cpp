// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/preflight/check.hpp>

#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/print.hpp>

namespace ostrakon::preflight {
namespace {

constexpr const char* end_of_rates = "";

Fact* find(Facts& facts, const std::string& name) {
  const auto found =
      std::find_if(facts.begin(), facts.end(), [&](const Fact& fact) { return fact.name == name; });
  return found == facts.end() ? nullptr : &*found;
}

}  // namespace

std::string Answer::fact(const std::string& name) const {
  for (const Fact& fact : facts)
    if (fact.name == name) return fact.value;
  return "";
}

void append(Findings& all, const Findings& more) {
  all.insert(all.end(), more.begin(), more.end());
}

Answer best_of(const Answer& one, const Answer& other) {
  Answer best = one;
  for (const auto& [name, rate] : other.rates) {
    double& known = best.rates[name];
    known = std::max(known, rate);
  }
  for (const Fact& fact : other.facts) {
    Fact* const known = find(best.facts, fact.name);
    if (known == nullptr)
      best.facts.push_back(fact);
    else if (known->value != fact.value)
      known->value += " and later " + fact.value;
  }
  return best;
}

std::string pack(const Answer& answer) {
  Facts all;
  for (const auto& [name, rate] : answer.rates) all.push_back({name, print("%.17g", rate)});
  all.push_back({end_of_rates, ""});
  all.insert(all.end(), answer.facts.begin(), answer.facts.end());
  return pack_facts(all);
}

Answer unpack(const std::string& packed) {
  Answer answer;
  bool are_rates = true;
  for (const Fact& fact : unpack_facts(packed)) {
    if (!are_rates) {
      answer.facts.push_back(fact);
    } else if (fact.name == end_of_rates) {
      are_rates = false;
    } else {
      double rate = 0.0;
      require(static_cast<bool>(TextReader(fact.value) >> rate), "the rate ", fact.name,
              " of another rank is ", fact.value, "; expected a number");
      answer.rates[fact.name] = rate;
    }
  }
  return answer;
}

}  // namespace ostrakon::preflight
