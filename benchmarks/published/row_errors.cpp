// SPDX-License-Identifier: Apache-2.0
#include "row_errors.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ostrakon/base/error.hpp>

namespace ostrakon::published {

ErrorSummary summarize(std::vector<double> errors) {
  ErrorSummary all;
  all.rows = static_cast<int>(errors.size());
  if (errors.empty()) return all;
  for (double& error : errors) {
    all.bias += error / all.rows;
    error = std::fabs(error);
    all.mean += error / all.rows;
    if (error <= 0.1) all.within_tenth += 1.0 / all.rows;
  }
  std::sort(errors.begin(), errors.end());
  all.median = errors[errors.size() / 2];
  all.most = errors.back();
  return all;
}

std::map<std::string, ErrorSummary> summarize_by(
    const std::vector<PublishedRow>& rows, const std::vector<double>& errors,
    const std::function<std::vector<std::string>(const PublishedRow&)>& keys) {
  std::map<std::string, std::vector<double>> groups;
  for (std::size_t r = 0; r < rows.size(); ++r)
    for (const std::string& key : keys(rows[r])) groups[key].push_back(errors[r]);
  std::map<std::string, ErrorSummary> summaries;
  for (const auto& [key, group] : groups) summaries[key] = summarize(group);
  return summaries;
}

std::string header_of_summary(const std::string& what) {
  return "| " + what +
         " | rows | mean % | median % | most % | within 10 % | bias % |\n"
         "|---|---|---|---|---|---|---|\n";
}

std::string line_of_summary(const std::string& name, const ErrorSummary& summary) {
  char line[300];
  std::snprintf(line, sizeof line, "| %s | %d | %.2f | %.2f | %.1f | %.1f %% | %+.1f |\n",
                name.c_str(), summary.rows, 100.0 * summary.mean, 100.0 * summary.median,
                100.0 * summary.most, 100.0 * summary.within_tenth, 100.0 * summary.bias);
  return line;
}

std::vector<ScalingEfficiency> scaling_efficiencies(const std::vector<PublishedRow>& rows,
                                                    const SimulatedSeconds& seconds) {
  const auto row = [&](const char* id) -> const PublishedRow& {
    const auto found = std::find_if(rows.begin(), rows.end(),
                                    [&](const PublishedRow& one) { return one.id == id; });
    require(found != rows.end(), "no row ", id);
    return *found;
  };
  /// `ranks`: other ranks than the row's, with as much for each; 0: the row's.
  const auto efficiency = [&](const char* few, const char* many, int ranks) {
    PublishedRow more = row(many);
    if (ranks > 0) {
      const bool has_replicas = more.replicas() > 1;
      if (!has_replicas) more.shard_ranks = more.shard_ranks * ranks / more.ranks;
      more.ranks = ranks;
    }
    return 100.0 * seconds(row(few)) / seconds(more);
  };
  const auto measured = [&](const char* few, const char* many) {
    return 100.0 * row(few).seconds / row(many).seconds;
  };
  return {
      {"torchtitan Llama 8B, eager, 8 to 128", measured("217", "220"), efficiency("217", "220", 0)},
      {"torchtitan Llama 8B, compiled, 8 to 128", measured("218", "221"),
       efficiency("218", "221", 0)},
      {"MosaicML MPT-7B, 128 to 512", 92.0, efficiency("12", "12", 512)},
      {"MosaicML MPT-70B, 128 to 512", 95.0, efficiency("3", "3", 512)},
      {"InternEvo 7B, ZeRO-1 over all, 8 to 1024", 56.0, efficiency("282", "282", 1024)},
      {"InternEvo 7B, ZeRO-1 within nodes, 8 to 1024", 89.0, efficiency("290", "295", 1024)}};
}

}  // namespace ostrakon::published
