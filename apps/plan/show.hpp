// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <ostrakon/base/print.hpp>
#include <ostrakon/trainer/handlers/submissions.hpp>

#include "../common/planned_step.hpp"
#include "options.hpp"

namespace ostrakon::apps::plan_program {

/// What --time shows, also with --sweep.
void show_time(config::Settings settings, const Line& line);

/// What --choose shows.
void show_choice(config::Settings settings, const Line& line);

/// What the first rank of the stage that is shown submits to a device of the form that this program
/// counts; nullopt where routing decides it.
std::optional<train::Submissions> submissions_of(const config::Settings& settings,
                                                 const model::Model& model,
                                                 const std::vector<plan::StepPlan>& stages,
                                                 const runtime::Program& shown);

/// Whether this program counts the kernels of a step.
bool counts(const config::Settings& settings);

/// Throws Error unless this program counts kernels of what the ranks compute on.
void require_counted(const config::Settings& settings);

/// What --kernels shows of a step that submits this.
void show_kernels(const plan::StepPlan& plan, const train::Submissions& submitted, bool json,
                  std::ostream& out);

/// The settings with what a run would choose, if they say that it chooses.
config::Settings with_choice(const config::Settings& settings, const Line& line);

/// The machine of --time, with the stack of --stack or its own.
simulate::Machine machine_of(const Line& line);

/// Ranks of a node of the machine: as given, as the deck says, or as the machine has.
inline int ranks_of_machine(const config::Settings& settings, const Line& line,
                            const simulate::Machine& machine) {
  if (line.ranks_per_node > 0) return line.ranks_per_node;
  return static_cast<int>(settings.ranks_per_node > 0 ? settings.ranks_per_node
                                                      : machine.ranks_per_node);
}

constexpr const char* program_name = "ostrakon-plan";

inline std::string file_name(const std::string& path) {
  return std::filesystem::path(path).filename().string();
}

inline std::string seconds_text(double seconds) {
  if (seconds >= 1.0) return print("%.4g s", seconds);
  if (seconds >= 1e-3) return print("%.4g ms", 1e3 * seconds);
  return print("%.4g us", 1e6 * seconds);
}

inline nlohmann::ordered_json factors_json(const simulate::Factors& factors) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const auto& [name, factor] : list(factors)) json[name] = factor;
  return json;
}

}  // namespace ostrakon::apps::plan_program
