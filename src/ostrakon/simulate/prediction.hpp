// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/simulate/machine_costs.hpp>
#include <string>
#include <utility>
#include <vector>

namespace ostrakon::simulate {

/// What takes a step's time from what the devices could do at their peak. Each is 1 where it takes
/// nothing; their product is the efficiency, MFU.
struct Factors {
  double recomputation = 1.0;  ///< operations that count, of all
  double kernels = 1.0;        ///< all operations at the peak, of the time that a rank computes
  double balance = 1.0;        ///< operations of a stage on average, of those of the longest
  double communication = 1.0;  ///< that nothing computes beside
  double host = 1.0;           ///< the same of updates on the host, reading, starting
  double copies = 1.0;         ///< the same of copies between host and device
  double bubbles = 1.0;        ///< waiting for other stages
  double variation = 1.0;      ///< waiting for the slowest rank

  double product() const {
    return recomputation * kernels * balance * communication * host * copies * bubbles * variation;
  }
};

/// All of them by name, in the order in which they are shown.
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

/// A part of the chain of actions that decides how long a step takes.
struct CriticalPart {
  std::string action;    ///< "forward(block.*)"
  double seconds = 0.0;  ///< of them all on the chain
  int actions = 0;
};

/// What a step takes with a part of the machine twice as good.
struct Remedy {
  std::string what;  ///< "twice the bandwidth across nodes"
  double step_seconds = 0.0;
};

/// How long a step takes on a machine.
struct Prediction {
  double step_seconds = 0.0;            ///< expected
  double fastest = 0.0, slowest = 0.0;  ///< where 19 of 20 runs are, by the machine's deviations
  double mfu = 0.0;
  Factors factors;                     ///< of the stage that computes longest
  std::vector<plan::Timing> timings;   ///< of each stage, without variation
  int busiest = 0;                     ///< the stage that computes longest
  std::vector<CriticalPart> critical;  ///< of that stage, the longest first
};

/// By how much longer than simulated a step takes on so many ranks, which wait for the slowest: 0.1
/// is 10 % longer.
double added_by_variation(const Machine& machine, int ranks);

/// Plays the plans of all stages. `model_flops`: of a step on all ranks, that count for MFU.
Prediction predict(const std::vector<const plan::StepPlan*>& stages, const Machine& machine,
                   int ranks_per_node, Streams streams, double model_flops);

/// Seconds of a step in which all ranks are equally fast: predict()'s are these times
/// 1 + added_by_variation. In less time, as nothing else is found.
double seconds_if_equally_fast(const std::vector<const plan::StepPlan*>& stages,
                               const Machine& machine, int ranks_per_node, Streams streams);

/// What parts of the machine would have to be twice as good for, the most useful first; those with
/// less than half a per cent are left out.
std::vector<Remedy> find_remedies(const std::vector<const plan::StepPlan*>& stages,
                                  const Machine& machine, int ranks_per_node, Streams streams,
                                  double model_flops);

}  // namespace ostrakon::simulate
