// SPDX-License-Identifier: Apache-2.0
// Measured steps of other programs against the simulator with the machine files that are shipped.
// OSTRAKON_TEST_TABLE=1 prints every row.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <ostrakon/config/machine_file.hpp>
#include <sstream>

#include "published_rows.hpp"
#include "row_errors.hpp"

namespace ostrakon::published {
namespace {

const std::string sources = OSTRAKON_SOURCE_DIR, folder = sources + "/benchmarks/published";

simulate::Machine read_machine(const std::string& name) {
  const std::string path = sources + "/machines/" + name + ".yaml";
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return config::read_machine(text.str(), path);
}

class Simulated {
 public:
  Simulated() : stacks_(read_stacks(folder + "/stacks.csv")) {}
  double seconds(const PlannedRow& planned) {
    const std::string& name = planned.row().machine;
    const auto found = machines_.find(name);
    const simulate::Machine& machine =
        found != machines_.end() ? found->second
                                 : machines_.emplace(name, read_machine(name)).first->second;
    return planned.seconds(machine, stacks_.at(planned.row().stack));
  }

 private:
  std::map<std::string, Stack> stacks_;
  std::map<std::string, simulate::Machine> machines_;
};

/// What may not get worse: what it is now and a tenth more.
struct Bound {
  const char* dimension;
  double mean;          ///< per cent
  double within_tenth;  ///< least share of rows with an error of 10 % at most, in per cent
};
const Bound bounds[] = {
#include "published_rows_bounds.inc"
};

TEST(PublishedRows, AreSimulatedAsWellAsTheyWere) {
  const std::vector<PublishedRow> rows = read_published_rows(folder + "/rows.csv");
  EXPECT_EQ(rows.size(), 410U);
  Simulated simulated;
  std::vector<double> errors;
  const bool prints = std::getenv("OSTRAKON_TEST_TABLE") != nullptr;
  for (const PublishedRow& row : rows) {
    const double seconds = simulated.seconds(PlannedRow(row));
    errors.push_back(seconds / row.seconds - 1.0);
    if (prints)
      std::printf("%s,%s,%s,%.4g,%.4g,%+.2f\n", row.id.c_str(), row.group.c_str(),
                  row.model.c_str(), row.seconds, seconds, 100.0 * errors.back());
  }
  auto summaries =
      summarize_by(rows, errors, [](const PublishedRow& row) { return row.dimensions(); });
  summaries["all"] = summarize(errors);
  if (prints)
    for (const auto& [name, summary] : summaries)
      std::fputs(line_of_summary(name, summary).c_str(), stdout);
  for (const Bound& bound : bounds) {
    const ErrorSummary& summary = summaries.at(bound.dimension);
    EXPECT_LE(100.0 * summary.mean, bound.mean) << bound.dimension;
    EXPECT_GE(100.0 * summary.within_tenth, bound.within_tenth) << bound.dimension;
  }
}

TEST(PublishedRows, ScaleAsMeasured) {
  const std::vector<PublishedRow> rows = read_published_rows(folder + "/rows.csv");
  Simulated simulated;
  for (const ScalingEfficiency& one : scaling_efficiencies(
           rows, [&](const PublishedRow& row) { return simulated.seconds(PlannedRow(row)); }))
    EXPECT_NEAR(one.simulated, one.measured, 3.0) << one.name;
}

// What is done to make plans of many micro-batches short. Merged phases overlap no exchange with
// the gradients of parameters, as whole units of ours do: so these take less.
TEST(PublishedRows, ShortPlansTakeAboutAsLongAsWholeOnes) {
  Simulated simulated;
  for (const PublishedRow& row : read_published_rows(folder + "/rows.csv")) {
    // vTrain with 8 tensor ranks, 16 micro-batches; Megatron-Core with a pipeline.
    if (row.id != "366" && row.id != "516") continue;
    RowPlanning all_micro_batches, whole;
    all_micro_batches.continues_line = whole.continues_line = whole.merges_phases = false;
    const double seconds = simulated.seconds(PlannedRow(row));
    EXPECT_NEAR(seconds, simulated.seconds(PlannedRow(row, all_micro_batches)), 0.005 * seconds)
        << row.id;
    EXPECT_NEAR(seconds, simulated.seconds(PlannedRow(row, whole)), 0.1 * seconds) << row.id;
  }
}

}  // namespace
}  // namespace ostrakon::published
