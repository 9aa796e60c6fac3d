// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <ctime>
#include <filesystem>
#include <functional>
#include <future>
#include <iterator>
#include <mutex>
#include <numeric>
#include <ostrakon/base/clock.hpp>
#include <ostrakon/base/float_mode.hpp>
#include <ostrakon/runtime/executor.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "runtime/hand_made.hpp"
#include "support/allocations.hpp"
#include "support/messages.hpp"

namespace {

using namespace ostrakon;
using namespace std::chrono_literals;
using plan::Kind;
using plan::Stream;
using runtime::Executor;
using runtime::Streams;
using test::program_of;
using test::Step;

constexpr Streams both_ways[] = {Streams::in_plan_order, Streams::threads};

const char* name(Streams streams) {
  return streams == Streams::threads ? "on threads" : "in plan order";
}

/// Runs `work` with the index of each action.
void on_all(Executor& executor, const std::function<void(int)>& work) {
  for (const Kind kind : test::kind_of)
    executor.on(kind, [work](const runtime::ActionBuffers& buffers) { work(buffers.action.unit); });
}

std::string error_of_run(Executor& executor, const runtime::Program& program) {
  return ostrakon::testing::error_of<std::exception>([&] { executor.run(program); });
}

TEST(Streams, AnActionSeesWhatThoseBeforeItWrote) {
  for (unsigned seed = 0; seed < 8; ++seed) {
    const std::vector<Step> steps = test::random_steps(60, seed);
    const auto descends = test::descent(steps);
    const runtime::Program program = program_of(steps);
    for (const Streams streams : both_ways) {
      Executor executor({}, streams);
      executor.perturb({seed, 300e-6});
      std::vector<int> written(steps.size(), 0);  // not atomic: only the order protects it
      std::vector<int> wrong(steps.size(), 0);
      int round = 0;
      on_all(executor, [&](int action) {
        const auto b = static_cast<std::size_t>(action);
        for (std::size_t a = 0; a < b; ++a)
          if (descends[b][a] && written[a] != round) ++wrong[b];
        written[b] = round;
      });
      for (round = 1; round <= 3; ++round) {
        executor.run(program);
        EXPECT_EQ(written, std::vector<int>(steps.size(), round)) << name(streams);
      }
      EXPECT_EQ(wrong, std::vector<int>(steps.size(), 0)) << name(streams) << ", seed " << seed;
    }
  }
}

TEST(Streams, ComputeInTheFloatModeOfTheThreadThatCalls) {
  const runtime::Program program =
      program_of({{Stream::gather, {}}, {Stream::compute, {}}, {Stream::host, {}}});
  for (const Streams streams : both_ways) {
    Executor executor({}, streams);
    std::vector<FloatMode> seen(3, FloatMode::of_this_thread());
    on_all(executor, [&](int action) {
      seen[static_cast<std::size_t>(action)] = FloatMode::of_this_thread();
    });
    const auto expect_all = [&] {
      executor.run(program);
      EXPECT_EQ(seen, std::vector<FloatMode>(3, FloatMode::of_this_thread())) << name(streams);
    };
    expect_all();
    {
      const FloatModeScope scope(Subnormals::flush);
      expect_all();
    }
    expect_all();
  }
}

TEST(Streams, ASlowActionIsWaitedForAndNobodyElse) {
  // Action 0 ends after 1, which waits for nothing; 2 waits for 0.
  const runtime::Program program =
      program_of({{Stream::gather, {}}, {Stream::compute, {}}, {Stream::compute, {0}}});
  Executor executor({}, Streams::threads);
  std::promise<void> end;
  std::future<void> ended = end.get_future();
  bool waited_for_1 = false;
  on_all(executor, [&](int action) {
    if (action == 0) {
      waited_for_1 = ended.wait_for(60s) == std::future_status::ready;
      std::this_thread::sleep_for(100ms);
    }
    if (action == 1) end.set_value();
  });
  executor.run(program);
  EXPECT_TRUE(waited_for_1);
  const std::vector<runtime::ActionTime>& times = executor.times();
  ASSERT_EQ(times.size(), 3U);
  EXPECT_GE(times[0].end - times[0].begin, 0.1);
  EXPECT_LT(times[1].end, times[0].end);
  EXPECT_GE(times[2].begin, times[0].end);
  for (const runtime::ActionTime& time : times) EXPECT_LE(time.begin, time.end);
}

// Three handlers wait for each other: if they ran one by one, the first would time out.
TEST(Streams, ActionsOfDifferentStreamsRunAtTheSameTime) {
  const runtime::Program program =
      program_of({{Stream::compute, {}}, {Stream::reduce, {}}, {Stream::gather, {}}});
  std::mutex mutex;
  std::condition_variable met;
  int arrived = 0;
  const auto meet = [&](std::chrono::milliseconds patience) {
    std::unique_lock<std::mutex> lock(mutex);
    ++arrived;
    met.notify_all();
    if (!met.wait_for(lock, patience, [&] { return arrived % 3 == 0; }))
      throw std::runtime_error("alone");
  };
  Executor executor({}, Streams::threads);
  on_all(executor, [&](int) { meet(60s); });
  for (int i = 0; i < 20; ++i) EXPECT_EQ(error_of_run(executor, program), "no error");

  Executor in_order({});
  on_all(in_order, [&](int) { meet(1ms); });
  arrived = 0;
  EXPECT_EQ(error_of_run(in_order, program), "alone");
}

TEST(Streams, ComputeRunsOnTheCallingThreadAndEachOtherStreamOnOneOfItsOwn) {
  const std::vector<Step> steps = test::random_steps(40, 3);
  const runtime::Program program = program_of(steps);
  std::vector<std::thread::id> threads(steps.size());
  Executor executor({}, Streams::threads);
  on_all(executor, [&](int action) {
    threads[static_cast<std::size_t>(action)] = std::this_thread::get_id();
  });
  const std::thread::id caller = std::this_thread::get_id();
  std::size_t told = 0;
  executor.observe([&](const plan::Action& action, bool) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    EXPECT_EQ(action.kind, Kind::forward);
    ++told;
  });
  executor.run(program);
  std::set<std::thread::id> of_stream[plan::streams];
  for (std::size_t a = 0; a < steps.size(); ++a)
    of_stream[static_cast<int>(steps[a].stream)].insert(threads[a]);
  std::set<std::thread::id> all;
  for (const auto& of_one : of_stream) {
    EXPECT_EQ(of_one.size(), 1U);
    all.insert(of_one.begin(), of_one.end());
  }
  EXPECT_EQ(all.size(), std::size_t{plan::streams});
  EXPECT_EQ(*of_stream[0].begin(), caller);
  const auto is_compute = [](const Step& step) { return step.stream == Stream::compute; };
  EXPECT_EQ(told,
            2U * static_cast<std::size_t>(std::count_if(steps.begin(), steps.end(), is_compute)));
}

TEST(Streams, OnlyStreamsThatProgramsUseHaveThreads) {
  const std::filesystem::path tasks = "/proc/self/task";
  if (!std::filesystem::exists(tasks)) GTEST_SKIP() << "the system does not list threads";
  const auto threads = [&] {
    return std::distance(std::filesystem::directory_iterator(tasks),
                         std::filesystem::directory_iterator());
  };
  const auto before = threads();
  Executor executor({}, Streams::threads);
  on_all(executor, [](int) {});
  EXPECT_EQ(threads(), before);
  for (int i = 0; i < 2; ++i) {
    executor.run(program_of({{Stream::compute, {}}, {Stream::host, {0}}}));
    EXPECT_EQ(threads(), before + 1);
  }
  executor.run(program_of({{Stream::upload, {}}, {Stream::compute, {0}}}));
  EXPECT_EQ(threads(), before + 2);
}

TEST(Streams, WhereAnActionFailsNothingRunsThatItHappensBefore) {
  for (unsigned seed = 0; seed < 4; ++seed) {
    const std::vector<Step> steps = test::random_steps(20, 100 + seed);
    const auto descends = test::descent(steps);
    const runtime::Program program = program_of(steps);
    for (const Streams streams : both_ways)
      for (const bool perturbed : {false, true}) {
        Executor executor({}, streams);
        if (perturbed) executor.perturb({seed, 100e-6});
        for (std::size_t failing = 0; failing < steps.size(); ++failing) {
          std::vector<int> runs(steps.size(), 0);
          on_all(executor, [&](int action) {
            ++runs[static_cast<std::size_t>(action)];
            if (action == static_cast<int>(failing))
              throw std::runtime_error(std::to_string(action));
          });
          EXPECT_EQ(error_of_run(executor, program), std::to_string(failing));
          const std::string where =
              "action where " + std::to_string(failing) + " fails, " + name(streams);
          for (std::size_t a = 0; a < steps.size(); ++a) {
            EXPECT_EQ(executor.times()[a].end == 0.0, runs[a] == 0);
            // On threads all actions except descendants run; in plan order, those before the
            // failure.
            if (streams == Streams::threads) {
              EXPECT_EQ(runs[a], descends[a][failing] ? 0 : 1) << a << ". " << where;
            } else if (!perturbed) {
              EXPECT_EQ(runs[a], a <= failing ? 1 : 0) << a << ". " << where;
            } else if (descends[failing][a] || descends[a][failing]) {
              EXPECT_EQ(runs[a], descends[failing][a] ? 1 : 0) << a << ". " << where;
            }
          }
        }
        std::vector<int> runs(steps.size(), 0);
        on_all(executor, [&](int action) { ++runs[static_cast<std::size_t>(action)]; });
        executor.run(program);
        EXPECT_EQ(runs, std::vector<int>(steps.size(), 1));
      }
  }
}

TEST(Streams, OfSeveralFailuresTheFirstInPlanOrderIsThrown) {
  const runtime::Program program =
      program_of({{Stream::compute, {}}, {Stream::reduce, {}}, {Stream::gather, {}}});
  for (const Streams streams : both_ways)
    for (unsigned seed = 0; seed < 10; ++seed) {
      Executor executor({}, streams);
      if (streams == Streams::threads) executor.perturb({seed, 1e-3});
      on_all(executor, [](int action) {
        if (action > 0) throw std::runtime_error(std::to_string(action));
      });
      EXPECT_EQ(error_of_run(executor, program), "1") << name(streams);
      // A stream that failed may have no action in the next run.
      EXPECT_EQ(error_of_run(executor, program_of({{Stream::compute, {}}})), "no error");
    }
}

TEST(Streams, AnObserverIsToldOfTheEndOfAnActionThatFails) {
  const runtime::Program program = program_of({{Stream::compute, {}}, {Stream::compute, {}}});
  for (const Streams streams : both_ways) {
    Executor executor({}, streams);
    on_all(executor, [](int) { throw std::runtime_error("failed"); });
    std::vector<bool> told;
    executor.observe([&](const plan::Action&, bool begins) { told.push_back(begins); });
    EXPECT_EQ(error_of_run(executor, program), "failed");
    EXPECT_EQ(told, (std::vector<bool>{true, false}));
  }
}

TEST(Streams, ShakingInPlanOrderGivesOrdersThatWaitsAllow) {
  const std::vector<Step> steps = test::random_steps(50, 11);
  const auto descends = test::descent(steps);
  const runtime::Program program = program_of(steps);
  const auto order = [&](Executor& executor) {
    std::vector<int> seen;
    on_all(executor, [&](int action) { seen.push_back(action); });
    executor.run(program);
    return seen;
  };
  Executor straight({});
  std::vector<int> plan_order(steps.size());
  std::iota(plan_order.begin(), plan_order.end(), 0);
  EXPECT_EQ(order(straight), plan_order);

  std::set<std::vector<int>> different;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Executor executor({}), another({});
    executor.perturb({seed, 0.0});
    another.perturb({seed, 1.0});  // the duration only matters for threads
    const std::vector<int> seen = order(executor);
    EXPECT_EQ(order(executor), seen);
    EXPECT_EQ(order(another), seen);
    different.insert(seen);
    ASSERT_EQ(seen.size(), steps.size());
    std::vector<std::size_t> place(steps.size(), steps.size());
    for (std::size_t i = 0; i < seen.size(); ++i) place[static_cast<std::size_t>(seen[i])] = i;
    for (std::size_t b = 0; b < steps.size(); ++b)
      for (std::size_t a = 0; a < b; ++a)
        if (descends[b][a]) {
          EXPECT_LT(place[a], place[b]);
        }
  }
  EXPECT_EQ(different.size(), 20U);
  EXPECT_EQ(different.count(plan_order), 0U);
}

TEST(Streams, ShakingOnThreadsTakesTimeThatIsNotTheActions) {
  const runtime::Program program = program_of(std::vector<Step>(20, {Stream::compute, {}}));
  Executor executor({}, Streams::threads);
  on_all(executor, [](int) {});
  executor.perturb({1, 4e-3});
  const double begin = seconds_now();
  executor.run(program);
  // The seed gives 40 sleeps of 2 ms on average.
  EXPECT_GT(seconds_now() - begin, 0.04);
  // The median is used, as a busy machine may interrupt some actions.
  std::vector<double> in_actions;
  for (const runtime::ActionTime& time : executor.times())
    in_actions.push_back(time.end - time.begin);
  std::sort(in_actions.begin(), in_actions.end());
  EXPECT_LT(in_actions[10], 1e-3);
}

TEST(Streams, NothingIsAllocatedOnceAProgramOfThatLengthHasRun) {
  const runtime::Program program = program_of(test::random_steps(200, 5));
  const runtime::Program shorter = program_of(test::random_steps(30, 6));
  for (const Streams streams : both_ways)
    for (const bool perturbed : {false, true}) {
      Executor executor({}, streams);
      on_all(executor, [](int) {});
      executor.observe([](const plan::Action&, bool) {});
      if (perturbed) executor.perturb({1, 1e-6});
      executor.run(program);
      const std::int64_t before = test::allocations();
      executor.run(program);
      EXPECT_EQ(test::allocations() - before, 0) << name(streams);
    }
  Executor executor({}, Streams::threads);
  on_all(executor, [](int) {});
  executor.run(program);
  executor.run(shorter);
  const std::int64_t before = test::allocations();
  executor.run(shorter);
  executor.run(program);
  EXPECT_EQ(test::allocations() - before, 0);
}

TEST(Streams, WaitingTakesNoProcessorTime) {
  const runtime::Program program = program_of({{Stream::gather, {}},
                                               {Stream::compute, {0}},
                                               {Stream::reduce, {1}},
                                               {Stream::compute, {2}}});
  Executor executor({}, Streams::threads);
  on_all(executor, [](int action) {
    if (action % 2 == 0) std::this_thread::sleep_for(200ms);
  });
  const std::clock_t before = std::clock();
  executor.run(program);
  EXPECT_LT(static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC, 0.1);
}

TEST(Streams, ThreadsEndWithTheExecutorWhateverItDid) {
  const runtime::Program none = program_of({});
  const runtime::Program one = program_of({{Stream::reduce, {}}});
  for (int i = 0; i < 100; ++i) {
    Executor executor({}, Streams::threads);
    on_all(executor, [](int) {});
    if (i % 3 > 0) executor.run(none);
    if (i % 3 > 1) executor.run(one);
  }
}

TEST(Streams, WhatCanNotRunIsRefusedBeforeAnythingRuns) {
  for (const Streams streams : both_ways) {
    Executor executor({}, streams);
    int runs = 0;
    on_all(executor, [&](int) { ++runs; });
    for (const int wrong : {1, 2, -1})
      EXPECT_NE(
          error_of_run(
              executor,
              program_of({{Stream::compute, {}}, {Stream::gather, {wrong}}, {Stream::reduce, {}}}))
              .find("waits for a later action"),
          std::string::npos);
    executor.on(Kind::reduce_scatter, nullptr);
    EXPECT_NE(error_of_run(executor, program_of({{Stream::compute, {}}, {Stream::reduce, {}}}))
                  .find("no handler for reduce_scatter(1)"),
              std::string::npos);
    EXPECT_EQ(runs, 0);
  }
}

TEST(Streams, AReleaseNeedsNoHandlerAndWaitsAllTheSame) {
  runtime::Program program = program_of({{Stream::gather, {}}, {Stream::compute, {0}}});
  program.plan.actions[1].kind = Kind::release;
  for (const Streams streams : both_ways) {
    Executor executor({}, streams);
    executor.on(Kind::gather,
                [](const runtime::ActionBuffers&) { std::this_thread::sleep_for(20ms); });
    executor.observe(
        [](const plan::Action& action, bool) { EXPECT_EQ(action.kind, Kind::gather); });
    executor.run(program);
    EXPECT_GE(executor.times()[1].begin, executor.times()[0].end);
  }
}

}  // namespace
