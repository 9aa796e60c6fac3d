// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <ostrakon/base/clock.hpp>
#include <ostrakon/runtime/trace.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "runtime/hand_made.hpp"

namespace {

using namespace ostrakon;
using nlohmann::json;
using plan::Kind;
using plan::Stream;

/// Actions of all streams with names and numbers that a trace must show.
runtime::Program program_to_trace() {
  runtime::Program program = test::program_of(test::random_steps(40, 2));
  int next = 0;
  for (plan::Action& action : program.plan.actions) {
    action.micro_batch = action.stream == Stream::compute ? next++ : -1;
    action.elements = action.stream == Stream::compute ? 0 : 768;
    action.element_bytes = 4;
    action.span.ranks = 3;
  }
  program.plan.units[3].name = "quote \" backslash \\ line\nend \x01";
  program.plan.units[4].name = "not \xff UTF-8";
  return program;
}

void run(runtime::Executor& executor, const runtime::Program& program, int failing = -1) {
  for (const Kind kind : test::kind_of)
    executor.on(kind, [=](const runtime::ActionBuffers& buffers) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      if (buffers.action.unit == failing) throw std::runtime_error("failed");
    });
  try {
    executor.run(program);
  } catch (const std::runtime_error&) {
    EXPECT_GE(failing, 0);
  }
}

std::vector<json> events_of(const json& trace, const char* phase) {
  std::vector<json> events;
  for (const json& event : trace.at("traceEvents"))
    if (event.at("ph") == phase) events.push_back(event);
  return events;
}

TEST(Trace, IsAnEmptyDocumentWithoutParts) {
  EXPECT_TRUE(json::accept(runtime::begin_trace() + runtime::end_trace()));
}

TEST(Trace, ShowsEachActionOnItsStream) {
  const runtime::Program program = program_to_trace();
  runtime::Executor executor({}, runtime::Streams::threads);
  std::string text;
  run(executor, program);                       // starts the threads
  const double origin = seconds_now() + 10e-3;  // so that some times are negative
  for (int step = 7; step < 9; ++step) {
    run(executor, program);
    text += runtime::trace_step(program, executor.times(), 5, step, origin);
  }
  const json trace = json::parse(runtime::begin_trace() + text +
                                 runtime::trace_rank(5, "node \"a\"") + runtime::end_trace());

  const std::vector<json> bars = events_of(trace, "X");
  const std::size_t count = program.plan.actions.size();
  ASSERT_EQ(bars.size(), 2 * count);
  std::map<int, double> end_of_thread;
  for (std::size_t i = 0; i < bars.size(); ++i) {
    const json& bar = bars[i];
    const plan::Action& action = program.plan.actions[i % count];
    if (action.unit != 4) {  // its name is not UTF-8, so a part of it can't be shown
      EXPECT_EQ(bar.at("name"), program.plan.describe(action));
      EXPECT_EQ(bar.at("args").at("unit"),
                program.plan.units[static_cast<std::size_t>(action.unit)].name);
    }
    EXPECT_EQ(bar.at("pid"), 5);
    const int thread = bar.at("tid");
    EXPECT_EQ(thread, static_cast<int>(action.stream));
    EXPECT_EQ(bar.at("args").at("step"), i < count ? 7 : 8);
    EXPECT_EQ(bar.at("args").value("micro_batch", -1), action.micro_batch);
    const bool sends = action.stream == Stream::gather || action.stream == Stream::reduce ||
                       action.stream == Stream::exchange;
    const bool copies = action.stream == Stream::upload || action.stream == Stream::download;
    EXPECT_EQ(bar.at("args").value("bytes_sent", -1), sends ? 768 * 4 / 3 * 2 : -1);
    EXPECT_EQ(bar.at("args").value("bytes_copied", -1), copies ? 768 * 4 : -1);
    const double begin = bar.at("ts"), duration = bar.at("dur");
    EXPECT_GE(duration, 50.0);
    if (i >= count) {
      const runtime::ActionTime& time = executor.times()[i - count];
      EXPECT_NEAR(begin, (time.begin - origin) * 1e6, 1e-3);
      EXPECT_NEAR(duration, (time.end - time.begin) * 1e6, 2e-3);
    }
    // To a hundredth of a nanosecond, as text and double differ.
    if (end_of_thread.count(thread) > 0) {
      EXPECT_GE(begin, end_of_thread[thread] - 1e-5);
    }
    end_of_thread[thread] = begin + duration;
  }
  EXPECT_LT(bars.front().at("ts"), 0.0);
}

TEST(Trace, NamesRanksAndStreams) {
  const json trace = json::parse(runtime::begin_trace() + runtime::trace_rank(5, "node \"a\"") +
                                 runtime::trace_rank(0, "b") + runtime::end_trace());
  std::map<std::pair<int, int>, std::string> threads;
  std::map<int, std::string> processes;
  for (const json& event : events_of(trace, "M")) {
    if (event.at("name") == "process_name")
      processes[event.at("pid")] = event.at("args").at("name");
    if (event.at("name") == "thread_name")
      threads[{event.at("pid"), event.at("tid")}] = event.at("args").at("name");
  }
  EXPECT_EQ(processes, (std::map<int, std::string>{{5, "rank 5 (node \"a\")"}, {0, "rank 0 (b)"}}));
  ASSERT_EQ(threads.size(), 2U * plan::streams);
  for (const int rank : {0, 5})
    for (int stream = 0; stream < plan::streams; ++stream)
      EXPECT_EQ((threads[{rank, stream}]), plan::name(static_cast<Stream>(stream)));
}

TEST(Trace, DoesNotShowWhatWasLeftOut) {
  const runtime::Program program = program_to_trace();
  runtime::Executor executor({});
  run(executor, program, 10);
  const json trace =
      json::parse(runtime::begin_trace() +
                  runtime::trace_step(program, executor.times(), 0, 0, 0.0) + runtime::end_trace());
  // In plan order no action begins after the one that failed.
  EXPECT_EQ(events_of(trace, "X").size(), 11U);
}

}  // namespace
