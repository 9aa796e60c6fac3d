// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <iostream>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/new_file.hpp>
#include <ostrakon/scaling/collected.hpp>
#include <ostrakon/scaling/results_files.hpp>
#include <string>

#include "command_line.hpp"
#include "draw.hpp"
#include "scale_commands.hpp"

namespace ostrakon::apps::scale_program {
namespace {

std::string path_in(const std::string& folder, const char* name) {
  return (std::filesystem::path(folder) / name).string();
}

}  // namespace

void collect_study(int argc, char** argv) {
  const CommandLine arguments(program, argc, argv, {}, {"--partial"});
  const std::string& folder = arguments.one_file("collect", "folder of a study");
  const scaling::Collected collected = scaling::collect(folder, arguments.flag("--partial"));
  scaling::write_collected(folder, collected);
  replace_file(path_in(folder, "collected.csv"), scaling::collected_csv(collected));
  for (const scaling::MissingRun& run : collected.missing)
    std::cout << "missing: " << printable(run.folder) << ": " << printable(run.reason) << "\n";
  std::cout << "collected " << collected.runs.size()
            << (collected.runs.size() == 1 ? " run into " : " runs into ")
            << printable(path_in(folder, "collected.json")) << "\n";
}

void report_study(int argc, char** argv) {
  const CommandLine arguments(program, argc, argv, {});
  const std::string& folder = arguments.one_file("report", "folder of a study");
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
}

}  // namespace ostrakon::apps::scale_program
