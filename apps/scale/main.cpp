// SPDX-License-Identifier: Apache-2.0

// ostrakon-scale: plans scaling studies, collects their runs, and reports speedup and efficiency.

#include <filesystem>
#include <iostream>
#include <memory>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/new_file.hpp>
#include <ostrakon/scaling/collected.hpp>
#include <ostrakon/scaling/results_files.hpp>

#include "../common/draw.hpp"
#include "../common/program.hpp"
#include "plan.hpp"

namespace ostrakon::apps::scale_program {
namespace {

std::string path_in(const std::string& folder, const char* name) {
  return (std::filesystem::path(folder) / name).string();
}

int collect_study(const std::string& folder, bool partial) {
  const scaling::Collected collected = scaling::collect(folder, partial);
  scaling::write_collected(folder, collected);
  replace_file(path_in(folder, "collected.csv"), scaling::collected_csv(collected));
  for (const scaling::MissingRun& run : collected.missing)
    std::cout << "missing: " << printable(run.folder) << ": " << printable(run.reason) << "\n";
  std::cout << "collected " << counted(static_cast<std::int64_t>(collected.runs.size()), "run")
            << " into " << printable(path_in(folder, "collected.json")) << "\n";
  return 0;
}

int report_study(const std::string& folder) {
  const scaling::Collected collected = scaling::read_collected(folder);
  const std::vector<scaling::ScalingPoint> points = scaling::scaling_points(collected);
  scaling::write_collected(folder, collected);
  replace_file(path_in(folder, "report.csv"), scaling::points_csv(points));
  for (const std::string& remark : scaling::describe_remarks(collected, points))
    std::cout << printable(remark) << "\n";
  for (const std::string& outlier : scaling::describe_outliers(collected))
    std::cout << "outlier: " << printable(outlier) << "\n";
  std::cout << scaling::figures(points) << std::flush;
  draw_file("study", path_in(folder, "collected.json"),
            {path_in(folder, "report.html"), path_in(folder, "report.md")});
  std::cout << "written: " << printable(path_in(folder, "report.html"))
            << ", report.md, report.csv\n";
  return 0;
}

}  // namespace

Command collect_command() {
  const auto partial = std::make_shared<bool>(false);
  return {"collect",
          "DIR",
          "reads metrics.jsonl and trace.json of all runs and writes DIR/collected.json and "
          "DIR/collected.csv. Refuses runs that are not finished or not of the study",
          {{"--partial", "", flag(*partial), "leave such runs out, and list them"}},
          [partial](const Given& given) { return collect_study(given.operands[0], *partial); }};
}

Command report_command() {
  return {"report",
          "DIR",
          "writes DIR/report.html, with plots, DIR/report.md and DIR/report.csv: speedup and "
          "efficiency with 95 % confidence intervals, the factors that the efficiency is a product "
          "of, outlier steps, and predictions next to measurements. The first two are made by the "
          "Python package ostrakon_report from DIR/collected.json. Prints lines for other tools: "
          "figure: ranks_4.efficiency 87.5 %",
          {},
          [](const Given& given) { return report_study(given.operands[0]); }};
}

}  // namespace ostrakon::apps::scale_program

int main(int argc, char** argv) {
  using namespace ostrakon::apps;
  using namespace ostrakon::apps::scale_program;
  return run_serial_program({"ostrakon-scale",
                             "",
                             {plan_command(), collect_command(), report_command()},
                             {},
                             "Exit status: 0 done, 1 bad input or failure."},
                            argc, argv);
}
