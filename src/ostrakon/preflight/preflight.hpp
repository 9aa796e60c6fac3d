// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <ostrakon/config/settings.hpp>
#include <ostrakon/mesh/mesh.hpp>
#include <ostrakon/plan/ir/step_plan.hpp>
#include <ostrakon/preflight/check.hpp>
#include <ostrakon/preflight/faults.hpp>
#include <ostrakon/simulate/machine.hpp>
#include <string>
#include <vector>

// Checks of all ranks before a run: whether they compute the same, are equally fast, reach each
// other as fast as others do, and have the same programs and folders.

namespace ostrakon::preflight {

struct Options {
  double seconds = 1.0;            ///< of each measurement; about ten of them are made
  std::string folder = ".";        ///< which ranks write to; it need not exist
  std::vector<std::string> files;  ///< that all ranks read
  std::optional<simulate::Machine> machine;
  const plan::StepPlan* plan = nullptr;  ///< whose collectives are measured; null: usual ones
  Faults faults;                         ///< by tests only
};

/// All checks, in the order in which they are made. Collective over the mesh, which has to outlive
/// them.
std::vector<Check> all_checks(mesh::Mesh& mesh, const Options& options);

/// What the checks of all ranks found.
struct Report {
  struct Part {
    Check check;
    Table table;
    int measurements = 1;
  };
  std::vector<Part> parts;
  Findings findings;
  double seconds = 0.0;

  int faults() const;
};

/// Makes the checks, all ranks at the same time. What may be due to other work on the machine is
/// measured up to `repeats` times more before it counts. Collective; equal on all ranks.
Report inspect(comm::Communicator& world, const std::vector<Check>& checks, int repeats = 3);

/// Returns findings, one line each.
std::string describe_findings(const Report& report);
/// Returns findings, then rates: of all ranks, and by host.
std::string describe(const Report& report);
nlohmann::ordered_json to_json(const Report& report);

/// Returns the hosts without a fault, one line each, in the order of ranks.
std::string good_hosts(const Report& report);

/// Makes all checks for a run. Returns its report; throws CollectiveError where there is a fault.
/// `plan`: of its step.
std::string require_sound(mesh::Mesh& mesh, const config::Settings& settings,
                          const plan::StepPlan& plan);

}  // namespace ostrakon::preflight
