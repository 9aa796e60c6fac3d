// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/simulate/machine_costs.hpp>
#include <string>
#include <utility>
#include <vector>

namespace ostrakon::simulate {

/// Factors that reduce a step from the devices' peak performance. Each is 1 if it costs nothing;
/// their product is the efficiency, MFU.
struct Factors {
  double recomputation = 1.0;  ///< operations that count for MFU / all operations
  double kernels = 1.0;        ///< time of all operations at the peak / compute time of a rank
  double balance = 1.0;        ///< mean operations of a stage / operations of the longest stage
  double communication = 1.0;  ///< exposed communication
  double host = 1.0;           ///< exposed work of the host: updates, reading, starting
  double copies = 1.0;         ///< exposed copies between host and device
  double bubbles = 1.0;        ///< waiting for other stages
  double variation = 1.0;      ///< waiting for the slowest rank

  double product() const {
    return recomputation * kernels * balance * communication * host * copies * bubbles * variation;
  }
};

/// The factors by name, in the order in which they are shown.
using NamedFactors = std::vector<std::pair<const char*, double>>;
inline NamedFactors list(const Factors& factors) {
  return {{"recomputation", factors.recomputation},
          {"kernels", factors.kernels},
          {"balance", factors.balance},
          {"communication", factors.communication},
          {"copies", factors.copies},
          {"host", factors.host},
          {"bubbles", factors.bubbles},
          {"variation", factors.variation}};
}

/// Actions of one kind on the critical path of a step.
struct CriticalPart {
  std::string action;    ///< "forward(block.*)"
  double seconds = 0.0;  ///< sum over these actions on the critical path
  int actions = 0;
};

/// The step time if one part of the machine were twice as good.
struct Improvement {
  std::string what;  ///< "twice the bandwidth across nodes"
  double step_seconds = 0.0;
};

/// The predicted time of a step on a machine.
struct Prediction {
  double step_seconds = 0.0;            ///< expected
  double fastest = 0.0, slowest = 0.0;  ///< interval of 19 of 20 measured steps
  double by_runs = 0.0;  ///< half of that interval relative to the step, by runs alone
  ModelError by_model;   ///< its sides by what the simulation is off alone
  double mfu = 0.0;
  Factors factors;                     ///< factors of the stage that computes longest
  std::vector<plan::Timing> timings;   ///< per stage, without variation
  int busiest = 0;                     ///< the stage that computes longest
  std::vector<CriticalPart> critical;  ///< critical path of that stage, the longest part first
};

/// Returns by how much a step takes longer than simulated as ranks wait for the slowest of `ranks`:
/// 0.1 is 10 % longer.
double added_by_variation(const Machine& machine, int ranks);

/// What the simulation is off by where the arena of a rank has so many bytes; 0: not known.
ModelError model_error(const std::vector<const plan::StepPlan*>& stages, const Machine& machine,
                       std::int64_t arena_bytes);

/// Simulates the plans of all stages. `model_flops`: operations of a step on all ranks that count
/// for MFU. `arena_bytes`: as for model_error.
Prediction predict(const std::vector<const plan::StepPlan*>& stages, const Machine& machine,
                   int ranks_per_node, Streams streams, double model_flops,
                   std::int64_t arena_bytes = 0);

/// Returns the seconds of a step in which all ranks are equally fast; predict() multiplies them by
/// 1 + added_by_variation. Takes less time than predict().
double seconds_if_equally_fast(const std::vector<const plan::StepPlan*>& stages,
                               const Machine& machine, int ranks_per_node, Streams streams);

/// Returns the gains of making parts of the machine twice as good, the largest first; gains below
/// half a per cent are left out.
std::vector<Improvement> find_improvements(const std::vector<const plan::StepPlan*>& stages,
                                           const Machine& machine, int ranks_per_node,
                                           Streams streams);

}  // namespace ostrakon::simulate
