// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iterator>
#include <ostrakon/runtime/executor.hpp>
#include <random>
#include <string>
#include <vector>

namespace ostrakon::test {

/// An action given by its stream and the actions that it waits for; its unit is its index in the
/// plan.
struct Step {
  plan::Stream stream;
  std::vector<int> waits;
};

/// The kind of action on each stream in these programs.
constexpr plan::Kind kind_of[] = {
    plan::Kind::forward,        plan::Kind::gather,       plan::Kind::reduce_scatter,
    plan::Kind::copy_to_device, plan::Kind::copy_to_host, plan::Kind::optimize,
    plan::Kind::send,           plan::Kind::receive,      plan::Kind::exchange};
static_assert(std::size(kind_of) == plan::streams);

/// Returns a program without buffers.
inline runtime::Program program_of(const std::vector<Step>& steps) {
  runtime::Program program;
  for (const Step& step : steps) {
    plan::Action action;
    action.kind = kind_of[static_cast<int>(step.stream)];
    action.stream = step.stream;
    action.unit = static_cast<int>(program.plan.actions.size());
    action.waits = step.waits;
    program.plan.units.emplace_back().name = std::to_string(action.unit);
    program.plan.actions.push_back(action);
  }
  return program;
}

/// Returns actions on random streams that wait for random earlier actions of other streams.
inline std::vector<Step> random_steps(int count, unsigned seed) {
  std::mt19937 generator(seed);
  const auto below = [&](int n) {
    return static_cast<int>(generator() % static_cast<unsigned>(n));
  };
  std::vector<Step> steps;
  for (int i = 0; i < count; ++i) {
    Step step{static_cast<plan::Stream>(below(plan::streams)), {}};
    for (int tries = below(3); i > 0 && tries > 0; --tries) {
      const int other = below(i);
      if (steps[static_cast<std::size_t>(other)].stream != step.stream) step.waits.push_back(other);
    }
    steps.push_back(step);
  }
  return steps;
}

/// Returns descends[b][a]: whether a happens before b, by the definition.
inline std::vector<std::vector<bool>> descent(const std::vector<Step>& steps) {
  const std::size_t count = steps.size();
  std::vector<std::vector<bool>> descends(count, std::vector<bool>(count, false));
  for (std::size_t b = 0; b < count; ++b) {
    std::vector<std::size_t> parents(steps[b].waits.begin(), steps[b].waits.end());
    for (std::size_t a = 0; a < b; ++a)
      if (steps[a].stream == steps[b].stream) parents.push_back(a);
    for (const std::size_t parent : parents) {
      descends[b][parent] = true;
      for (std::size_t a = 0; a < parent; ++a)
        if (descends[parent][a]) descends[b][a] = true;
    }
  }
  return descends;
}

}  // namespace ostrakon::test
