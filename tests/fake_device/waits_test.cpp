// SPDX-License-Identifier: Apache-2.0
// The waits of a plan order its streams: if one is left out that the proof requires, some schedule
// changes bits.
#include <fake_device/runtime.h>
#include <gtest/gtest.h>

#include <iostream>
#include <ostrakon/plan/memory/memory_plan.hpp>
#include <ostrakon/plan/proof/happens_before.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "fake_device/results.hpp"

namespace {

using namespace ostrakon;
using namespace ostrakon::tests;
using plan::Action;
using plan::Kind;

/// Whether the proof refuses the program.
bool is_refused(const runtime::Program& program) {
  try {
    plan::prove_memory(program.plan, program.memory);
    plan::prove_memory(program.plan, program.host_memory);
  } catch (const std::logic_error&) {
    return true;
  }
  return false;
}

/// Whether two actions that do work may use the same byte concurrently, one of them writing. A plan
/// can be refused without such a race, if a buffer ends too early and nothing reuses its bytes.
bool has_race(const runtime::Program& program) {
  struct Bytes {
    int action;
    const plan::MemoryPlan* memory;
    std::int64_t begin, end;
    bool writes;
  };
  std::vector<Bytes> all;
  const plan::StepPlan& plan = program.plan;
  const plan::HappensBefore order(plan);
  for (int a = 0; a < static_cast<int>(plan.actions.size()); ++a) {
    const Action& action = plan.actions[static_cast<std::size_t>(a)];
    if (action.kind == Kind::release) continue;
    for (const plan::Use& use : action.uses) {
      const plan::Buffer& buffer = plan.buffers[static_cast<std::size_t>(use.buffer)];
      const plan::MemoryPlan& memory =
          buffer.space == plan::Space::device ? program.memory : program.host_memory;
      const std::int64_t begin = memory.offsets[static_cast<std::size_t>(use.buffer)];
      const Bytes now{a, &memory, begin, begin + buffer.bytes, use.access != plan::Access::read};
      for (const Bytes& before : all)
        if (before.memory == now.memory && before.begin < now.end && now.begin < before.end &&
            (before.writes || now.writes) && before.action != a && !order.before(before.action, a))
          return true;
      all.push_back(now);
    }
  }
  return false;
}

/// Adds the action or, if it does no work, the actions that it waits for.
void add_workers(const plan::StepPlan& plan, int action, std::set<const Action*>& workers) {
  const Action& it = plan.actions[static_cast<std::size_t>(action)];
  if (it.kind != Kind::release) {
    workers.insert(&it);
    return;
  }
  for (const int wait : it.waits) add_workers(plan, wait, workers);
  for (int before = action - 1; before >= 0; --before)
    if (plan.actions[static_cast<std::size_t>(before)].stream == it.stream)
      return add_workers(plan, before, workers);
}

struct Score {
  int refused = 0, races = 0, seen = 0;
};

/// Runs of a program with one wait left out.
class Mutants {
 public:
  explicit Mutants(const config::Settings& settings)
      : run_(settings),
        // This is the run's own program, as its executor reads the waits there.
        program_(const_cast<runtime::Program&>(run_.trainer.program(plan::Purpose::train))) {
    run_.trainer.observe([this](const Action& action, bool begins) {
      fake_delay_next(begins && slow_.count(&action) > 0 ? seconds_ : 0.0);
    });
    expected_ = result_of(run_);
    EXPECT_EQ(std::get<0>(expected_), "");
    EXPECT_FALSE(differs());
  }

  /// Leaves out each wait of the training plan in turn, one stream for another at a time.
  Score run() {
    Score score;
    for (Action& action : program_.plan.actions) {
      const auto waits = action.waits;
      for (const int awaited : waits) {
        const Action& other = program_.plan.actions[static_cast<std::size_t>(awaited)];
        if (other.stream == action.stream) continue;
        action.waits.clear();
        for (const int kept : waits)
          if (kept != awaited) action.waits.push_back(kept);
        const bool races = has_race(program_);
        const bool refused = is_refused(program_);
        EXPECT_TRUE(refused || !races) << described(action, other);
        score.refused += refused;
        score.races += races;
        if (!races) continue;
        const bool is_seen = has_effect(awaited);
        score.seen += is_seen;
        if (!is_seen && run_.mesh.world().rank() == 0)
          std::cout << "not seen: " << described(action, other) << "\n";
      }
      action.waits = waits;
    }
    EXPECT_FALSE(differs());
    return score;
  }

  int rank() { return run_.mesh.world().rank(); }

 private:
  std::string described(const Action& action, const Action& other) const {
    return program_.plan.describe(action) + " does not wait for " + program_.plan.describe(other);
  }

  bool differs() { return differs_on_any_rank(run_, expected_); }

  /// Whether a schedule shows that nothing waits for `awaited`, which is delayed.
  bool has_effect(int awaited) {
    bool is_seen = false;
    add_workers(program_.plan, awaited, slow_);
    for (const double longest : {2e-3, 10e-3}) {
      seconds_ = longest;
      is_seen = is_seen || differs();
    }
    // It may be the last of several actions that are endangered.
    const std::vector<Action>& actions = program_.plan.actions;
    for (int before = 0; before < awaited; ++before)
      if (actions[static_cast<std::size_t>(before)].stream ==
          actions[static_cast<std::size_t>(awaited)].stream)
        slow_.insert(&actions[static_cast<std::size_t>(before)]);
    for (const double longest : {1e-3, 4e-3}) {
      seconds_ = longest;
      is_seen = is_seen || differs();
    }
    slow_.clear();
    // The observer does not see what a thread does, so the thread is delayed as well.
    for (const double longest : {5e-3, 50e-3}) {
      run_.trainer.perturb({0, longest, awaited});
      is_seen = is_seen || differs();
    }
    run_.trainer.perturb({});
    return is_seen;
  }

  SmallRun run_;
  runtime::Program& program_;
  Result expected_;
  std::set<const Action*> slow_;
  double seconds_ = 0.0;
};

TEST(Waits, EachThatTheProofAsksForIsNeeded) {
  int races = 0, seen = 0;
  for (const bool offloads : {true, false}) {
    config::Settings settings = small_llama(2);
    settings.runtime.streams = config::StreamsChoice::automatic;
    settings.training.global_batch_size = 8;
    if (offloads) {
      settings.parallel.offload = plan::Offload::all;
      settings.parallel.offload_activations = true;
    }
    Mutants mutants(settings);
    const Score score = mutants.run();
    if (mutants.rank() == 0)
      std::cout << "of " << score.refused << " waits that the proof asks for " << score.races
                << " keep bytes apart: " << score.seen << " seen\n";
    races += score.races;
    seen += score.seen;
  }
  EXPECT_GT(races, 80);
  EXPECT_GE(seen, 0.95 * races);
}

}  // namespace
