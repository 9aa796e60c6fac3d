// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <ostrakon/base/names.hpp>
#include <ostrakon/runtime/executor.hpp>
#include <vector>

namespace ostrakon::train {

/// What a rank spends the time of a step on. All but `communication` is its own work.
enum class Part : std::uint8_t {
  compute,        ///< kernels and updates
  data,           ///< reading micro-batches
  copies,         ///< copies between host and device memory
  between_steps,  ///< what follows a plan: output, saving, validation
  communication   ///< collectives and sums over ranks, in which it also waits for other ranks
};
constexpr Named<Part> part_names[] = {{Part::compute, "compute"},
                                      {Part::data, "data"},
                                      {Part::copies, "copies"},
                                      {Part::between_steps, "between_steps"},
                                      {Part::communication, "communication"}};
constexpr const char* name(Part part) { return name_in(part_names, part); }
constexpr int own_parts = static_cast<int>(Part::communication), all_parts = own_parts + 1;

/// Seconds of a step on one rank, means over some steps. Parts that run on different streams may
/// overlap. Messages between stages are in none of them.
struct RankTimes {
  int stage = 0;
  double step = 0.0;
  std::array<double, all_parts> of_part{};

  double& operator[](Part part) { return of_part[static_cast<std::size_t>(part)]; }
  double operator[](Part part) const { return of_part[static_cast<std::size_t>(part)]; }
  /// Adds `count` times the other's seconds.
  void add(const RankTimes& other, double count = 1.0);
};

/// Adds up what this rank spends the time of steps on, by the times of actions, which the executor
/// takes in any case: on a device they are those of its events. A step lasts from the end of the
/// step before; the first one of the process, which warms up, does not count.
class RankTimer {
 public:
  /// The work after the step before is over, and the next plan begins.
  void begin_step();
  /// A plan has run, whose actions took `times`.
  void end_step(const runtime::Program& program, const std::vector<runtime::ActionTime>& times);

  /// How many steps there were since the last take().
  std::int64_t steps() const { return steps_; }
  /// Returns the means over these steps, at least one.
  RankTimes take();

 private:
  RankTimes sums_;
  std::int64_t steps_ = 0;
  double end_ = 0.0;           // of the last step; 0: there was none
  double communicated_ = 0.0;  // watch::seconds_communicating() then
  RankTimes after_;            // what was spent since then
};

}  // namespace ostrakon::train
