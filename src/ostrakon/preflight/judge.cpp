// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/preflight/judge.hpp>

#include <algorithm>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/print.hpp>
#include <ostrakon/base/text.hpp>
#include <set>
#include <utility>

namespace ostrakon::preflight {
namespace {

std::size_t place(int rank) { return static_cast<std::size_t>(rank); }

/// Ranks by host, in the order of names.
using Hosts = std::map<std::string, std::vector<int>>;

Hosts by_host(const Table& table, const std::vector<int>& ranks) {
  Hosts hosts;
  for (const int rank : ranks) hosts[table.hosts[place(rank)]].push_back(rank);
  return hosts;
}

double percent_below(double value, double median) { return 100.0 * (1.0 - value / median); }

/// Ranks by the value that they have.
using Values = std::map<std::string, std::vector<int>>;

/// The value that most ranks have; of several, that of the lowest rank. Null without any.
const Values::value_type* most_common(const Values& values) {
  const Values::value_type* most = nullptr;
  for (const Values::value_type& one : values)
    if (most == nullptr || one.second.size() > most->second.size() ||
        (one.second.size() == most->second.size() && one.second.front() < most->second.front()))
      most = &one;
  return most;
}

}  // namespace

std::string shown(const Rate& rate, double value) {
  return print("%.4g %s", value * rate.scale, rate.unit.c_str());
}

Findings judge_rate(const Table& table, const std::string& check, const Rate& rate) {
  std::vector<double> values;
  for (const Answer& answer : table.answers)
    if (const auto found = answer.rates.find(rate.name); found != answer.rates.end())
      values.push_back(found->second);
  if (values.empty()) return {};
  const Middle middle = middle_of(values);
  const double least = middle.least(rate.floor);
  std::vector<int> slow;
  for (int rank = 0; rank < table.ranks(); ++rank) {
    const auto& rates = table.answers[place(rank)].rates;
    const auto found = rates.find(rate.name);
    if (found != rates.end() && found->second < least) slow.push_back(rank);
  }
  Findings findings;
  for (const auto& [host, ranks] : by_host(table, slow)) {
    double slowest = middle.median;
    for (const int rank : ranks)
      slowest = std::min(slowest, table.answers[place(rank)].rates.at(rate.name));
    findings.push_back(
        {check,
         text(rate.name, ": ", shown(rate, slowest),
              print(", %.0f %% below the median of ", percent_below(slowest, middle.median)),
              shown(rate, middle.median)),
         ranks,
         {host},
         rate.advice});
  }
  return findings;
}

void judge_by_machine(const Table& table, const std::string& check, const Rate& rate, double known,
                      Findings& findings) {
  std::vector<double> values;
  for (const Answer& answer : table.answers)
    if (const auto found = answer.rates.find(rate.name); found != answer.rates.end())
      values.push_back(found->second);
  if (values.empty()) return;
  const double median = middle_of(values).median;
  if (median < 0.5 * known)
    findings.push_back({check,
                        text(rate.name, ": ", shown(rate, median),
                             " in the middle; the machine file says ", shown(rate, known)),
                        {},
                        {},
                        text(rate.advice, "; or the machine file is of another machine")});
}

Findings judge_fact(const Table& table, const std::string& check, const std::string& name,
                    bool all_have, const std::string& advice) {
  const std::string nothing = "missing";
  Values values;
  for (int rank = 0; rank < table.ranks(); ++rank) {
    const std::string value = table.answers[place(rank)].fact(name);
    if (!value.empty() || all_have) values[value.empty() ? nothing : value].push_back(rank);
  }
  const Values::value_type* const usual = most_common(values);
  Findings findings;
  for (const Values::value_type& other : values) {
    if (other.first == usual->first) continue;
    for (const auto& [host, ranks] : by_host(table, other.second))
      findings.push_back(
          {check,
           text(name, ": ", printable(other.first), "; ", printable(usual->first), " on ",
                usual->second.size(), " of ", table.ranks(), " ranks, as on rank ",
                usual->second.front(), " (", table.hosts[place(usual->second.front())], ")"),
           ranks,
           {host},
           advice});
  }
  return findings;
}

Findings judge_facts(const Table& table, const std::string& check, bool all_have,
                     const std::string& advice) {
  std::vector<std::string> names;
  std::set<std::string> known;
  for (const Answer& answer : table.answers)
    for (const Fact& fact : answer.facts)
      if (known.insert(fact.name).second) names.push_back(fact.name);
  Findings all;
  for (const std::string& name : names)
    append(all, judge_fact(table, check, name, all_have, advice));
  return all;
}

std::string digest_fact(const std::string& digest, const std::string& kernel) {
  return digest + " by " + kernel;
}

std::string wrong_name(const std::string& name) { return "wrong " + name; }

Findings judge_digest(const Table& table, const std::string& check, const std::string& name) {
  const std::string advice =
      "this processor, its memory or its cooling is faulty: leave the host out and have it tested";
  Findings findings;
  std::map<std::string, Values> kernels;
  std::set<int> known;
  for (int rank = 0; rank < table.ranks(); ++rank) {
    const Answer& answer = table.answers[place(rank)];
    if (const std::string wrong = answer.fact(wrong_name(name)); !wrong.empty()) {
      known.insert(rank);
      findings.push_back({check,
                          text(name, ": other bits than the first one in ", wrong,
                               ", of the same "
                               "numbers"),
                          {rank},
                          {table.hosts[place(rank)]},
                          advice});
    }
    const std::string value = answer.fact(name);
    if (value.empty()) continue;
    const std::size_t by = value.find(" by ");
    kernels[by == std::string::npos ? "" : value.substr(by)][value].push_back(rank);
  }
  for (const auto& [kernel, digests] : kernels) {
    const Values::value_type* const usual = most_common(digests);
    const auto are_as_many = [&](const Values::value_type& one) {
      return one.second.size() == usual->second.size();
    };
    const bool is_usual_unclear = std::count_if(digests.begin(), digests.end(), are_as_many) > 1;
    for (const Values::value_type& other : digests) {
      const bool is_tied = is_usual_unclear && are_as_many(other);
      if (!is_tied && &other == usual) continue;
      std::vector<int> new_ranks;
      for (const int rank : other.second)
        if (known.count(rank) == 0) new_ranks.push_back(rank);
      for (const auto& [host, ranks] : by_host(table, new_ranks))
        findings.push_back(
            {check,
             text(name, ": other bits than on ", is_tied ? "as many" : "most",
                  " ranks with the same kernel", is_tied ? "; which are wrong can't be told" : ""),
             ranks,
             {host},
             advice});
    }
  }
  return findings;
}

std::string link_name(int round) { return text("link ", round); }

namespace {

struct Link {
  int one = 0, other = 0;
  double rate = 0.0;
};

/// Links inside hosts, or across them. A link is as fast as the slower of its ends says.
std::vector<Link> links_of(const Table& table, bool across) {
  std::vector<Link> links;
  for (int round = 0; 1 << round < table.ranks(); ++round)
    for (int one = 0; one < table.ranks(); ++one) {
      const int other = one ^ 1 << round;
      if (other < one || other >= table.ranks()) continue;
      if (across != (table.hosts[place(one)] != table.hosts[place(other)])) continue;
      const auto& ours = table.answers[place(one)].rates;
      const auto& theirs = table.answers[place(other)].rates;
      const auto a = ours.find(link_name(round)), b = theirs.find(link_name(round));
      if (a != ours.end() && b != theirs.end())
        links.push_back({one, other, std::min(a->second, b->second)});
    }
  return links;
}

std::string rate_text(double bytes_per_second) {
  return print("%.4g GB/s", bytes_per_second * 1e-9);
}

/// Counts the links of each host, and the slow ones among them.
struct Count {
  std::size_t all = 0, slow = 0;
  std::set<int> ranks;

  bool is_host_slow() const { return slow > 1 && 2 * slow > all; }
};

Findings judge_class(const Table& table, const std::string& check, bool across, double known) {
  constexpr double floor = 0.35;
  const std::vector<Link> links = links_of(table, across);
  if (links.empty()) return {};
  std::vector<double> rates;
  for (const Link& link : links) rates.push_back(link.rate);
  const Middle middle = middle_of(rates);
  const double least = middle.least(floor);
  const std::string kind = across ? "across hosts" : "inside a host";
  const std::string advice =
      across ? "look for a port that is down or has errors, and at the switch"
             : "look at the links of its devices, and at the binding of ranks to cores";
  std::map<std::string, Count> hosts;
  for (const Link& link : links)
    for (const auto& [rank, other] : {std::pair(link.one, link.other), {link.other, link.one}}) {
      Count& count = hosts[table.hosts[place(rank)]];
      if (!across && rank == link.other) continue;  // a link inside a host counts once
      ++count.all;
      if (link.rate >= least) continue;
      ++count.slow;
      count.ranks.insert(rank);
      if (!across) count.ranks.insert(other);
    }
  Findings findings;
  for (const auto& [host, count] : hosts)
    if (across && count.is_host_slow())
      findings.push_back({check,
                          text(count.slow, " of ", count.all, " links ", kind,
                               " are slow; the median of all is ", rate_text(middle.median)),
                          {count.ranks.begin(), count.ranks.end()},
                          {host},
                          advice});
  for (const Link& link : links) {
    if (link.rate >= least) continue;
    const std::string &one = table.hosts[place(link.one)], &other = table.hosts[place(link.other)];
    if (across && (hosts[one].is_host_slow() || hosts[other].is_host_slow())) continue;
    Finding finding{
        check,
        text("link ", kind, ": ", rate_text(link.rate),
             print(", %.0f %% below the median of ", percent_below(link.rate, middle.median)),
             rate_text(middle.median)),
        {link.one, link.other},
        {one},
        advice};
    if (across) finding.hosts.push_back(other);
    findings.push_back(std::move(finding));
  }
  if (middle.median < 0.5 * known)
    findings.push_back({check,
                        text("links ", kind, ": ", rate_text(middle.median),
                             " in the middle; the machine file says ", rate_text(known)),
                        {},
                        {},
                        "look at the network that MPI uses, and at the machine file"});
  return findings;
}

}  // namespace

Findings judge_links(const Table& table, const std::string& check, double known_inside,
                     double known_across) {
  Findings all = judge_class(table, check, false, known_inside);
  append(all, judge_class(table, check, true, known_across));
  return all;
}

}  // namespace ostrakon::preflight
