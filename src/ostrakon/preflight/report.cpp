// SPDX-License-Identifier: Apache-2.0
// The report of a preflight: as text, as JSON, and as a list of hosts.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/format_ranks.hpp>
#include <ostrakon/base/print.hpp>
#include <ostrakon/base/text.hpp>
#include <ostrakon/preflight/preflight.hpp>
#include <set>

namespace ostrakon::preflight {
namespace {

std::string joined(const std::vector<std::string>& words) {
  std::string list;
  for (const std::string& word : words) list += text(list.empty() ? "" : ", ", word);
  return list;
}

std::string place_text(const Finding& finding) {
  if (finding.hosts.empty()) return "all ranks";
  return text(format_ranks(finding.ranks), " (", joined(finding.hosts), ")");
}

struct Measured {
  double rate = 0.0;
  int rank = 0;
};

/// A rate of all ranks, from the lowest on.
struct Rates {
  std::string name;
  std::vector<Measured> all;

  const Measured& least() const { return all.front(); }
  const Measured& middle() const { return all[all.size() / 2]; }
  const Measured& most() const { return all.back(); }
};

std::vector<Rates> rates_of(const Report::Part& part) {
  std::map<std::string, std::vector<Measured>> rates;
  for (int rank = 0; rank < part.table.ranks(); ++rank)
    for (const auto& [name, rate] : part.table.answers[static_cast<std::size_t>(rank)].rates)
      rates[name].push_back({rate, rank});
  std::vector<Rates> all;
  for (auto& [name, measured] : rates) {
    std::sort(measured.begin(), measured.end(),
              [](const Measured& a, const Measured& b) { return a.rate < b.rate; });
    all.push_back({name, measured});
  }
  return all;
}

/// The lowest rate of each host, of rates that all hosts have.
std::string host_table(const Report& report) {
  const std::vector<std::string>& hosts = report.parts.front().table.hosts;
  std::vector<std::string> names;
  std::map<std::string, int> ranks;
  for (const std::string& host : hosts)
    if (++ranks[host] == 1) names.push_back(host);
  std::size_t width = 4;
  for (const std::string& name : names) width = std::max(width, name.size());
  struct Column {
    std::string title;
    std::map<std::string, double> least;  ///< by host
    double scale = 1.0;
  };
  std::vector<Column> columns;
  for (const Report::Part& part : report.parts) {
    if (part.check.unit.empty()) continue;
    for (const Rates& rates : rates_of(part)) {
      Column column{rates.name, {}, part.check.scale};
      for (const Measured& one : rates.all)
        column.least.emplace(hosts[static_cast<std::size_t>(one.rank)], one.rate);
      if (column.least.size() == names.size()) columns.push_back(column);
    }
  }
  std::string lines = "\nlowest rate by host:\n";
  for (std::size_t c = 0; c < columns.size(); ++c)
    lines += print("  (%zu) %s\n", c + 1, columns[c].title.c_str());
  lines += print("  %-*s  ranks", static_cast<int>(width), "host");
  for (std::size_t c = 0; c < columns.size(); ++c)
    lines += print("  %8s", text("(", c + 1, ")").c_str());
  lines += "\n";
  for (const std::string& name : names) {
    lines += print("  %-*s  %5d", static_cast<int>(width), printable(name).c_str(), ranks[name]);
    for (const Column& column : columns)
      lines += print("  %8.4g", column.least.at(name) * column.scale);
    lines += "\n";
  }
  return lines;
}

}  // namespace

std::string describe_findings(const Report& report) {
  std::string lines;
  for (const Finding& one : report.findings)
    lines += text("  ", one.is_fault ? "fault" : "note", ": ", one.check, ", ", place_text(one),
                  ": ", one.what, one.is_fault ? "; what to do: " : "; ", one.advice, "\n");
  return lines;
}

std::string describe(const Report& report) {
  const std::vector<std::string>& hosts = report.parts.front().table.hosts;
  const std::size_t count = std::set<std::string>(hosts.begin(), hosts.end()).size();
  const int faults = report.faults();
  std::string lines =
      text("preflight of ", hosts.size(), hosts.size() == 1 ? " rank" : " ranks", " on ", count,
           count == 1 ? " host" : " hosts", ", ", print("%.1f s", report.seconds), ": ",
           faults == 0 ? std::string("nothing wrong found")
                       : text(faults, faults == 1 ? " fault" : " faults"),
           "\n", describe_findings(report), "\n");
  lines += print("%-50s  %10s  %10s  %10s\n", "rate", "lowest", "median", "highest");
  for (const Report::Part& part : report.parts) {
    if (part.check.unit.empty()) continue;
    for (const Rates& rates : rates_of(part)) {
      const double scale = part.check.scale;
      lines +=
          print("%-50s  %10.4g  %10.4g  %10.4g  %s", rates.name.c_str(), rates.least().rate * scale,
                rates.middle().rate * scale, rates.most().rate * scale, part.check.unit.c_str());
      const auto lowest = static_cast<std::size_t>(rates.least().rank);
      lines += hosts.size() > 1
                   ? text(", lowest on rank ", lowest, " (", printable(hosts[lowest]), ")\n")
                   : "\n";
    }
  }
  return count > 1 ? lines + host_table(report) : lines;
}

nlohmann::ordered_json to_json(const Report& report) {
  nlohmann::ordered_json json = {{"bench", "preflight"},
                                 {"seconds", report.seconds},
                                 {"faults", report.faults()},
                                 {"findings", nlohmann::ordered_json::array()},
                                 {"checks", nlohmann::ordered_json::array()}};
  for (const Finding& one : report.findings)
    json["findings"].push_back({{"check", one.check},
                                {"fault", one.is_fault},
                                {"what", printable(one.what)},
                                {"ranks", one.ranks},
                                {"hosts", one.hosts},
                                {"advice", one.advice}});
  for (const Report::Part& part : report.parts) {
    nlohmann::ordered_json check = {{"name", part.check.name},
                                    {"measurements", part.measurements},
                                    {"rates", nlohmann::ordered_json::object()}};
    if (!part.check.unit.empty())
      for (const Rates& rates : rates_of(part)) {
        nlohmann::ordered_json& of_rank = check["rates"][rates.name];
        for (const Answer& answer : part.table.answers) {
          const auto found = answer.rates.find(rates.name);
          of_rank.push_back(found == answer.rates.end() ? nlohmann::ordered_json()
                                                        : nlohmann::ordered_json(found->second));
        }
      }
    json["checks"].push_back(std::move(check));
  }
  json["hosts"] = report.parts.front().table.hosts;
  return json;
}

std::string good_hosts(const Report& report) {
  std::set<std::string> left_out;
  for (const Finding& one : report.findings)
    if (one.is_fault) left_out.insert(one.hosts.begin(), one.hosts.end());
  std::string lines;
  for (const std::string& host : report.parts.front().table.hosts)
    if (left_out.insert(host).second) lines += host + "\n";
  return lines;
}

}  // namespace ostrakon::preflight
