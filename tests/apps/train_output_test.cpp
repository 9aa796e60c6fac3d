// SPDX-License-Identifier: Apache-2.0

// What a run of ostrakon-train leaves: traces, weights, its deck; and what tools see of it.

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "programs_fixture.hpp"
#include "support/messages.hpp"

namespace ostrakon::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Texts = std::vector<std::string>;

TEST_F(Programs, TracesShowTheActionsOfThePlan) {
  for (const std::string streams : {"inline", "threads"}) {
    const std::string folder = "traced-" + streams;
    train(2, folder, {"output.trace=2", "runtime.streams=" + streams});
    const Json trace = Json::parse(read_bytes(path(folder + "/trace.json")));
    const Json plan = Json::parse(read_bytes(path(folder + "/plan.json")));
    // Every action, on both ranks, in steps 2 and 3, on its stream.
    const std::vector<std::string> stream_names = {"compute", "gather",   "reduce",
                                                   "upload",  "download", "host"};
    std::map<std::string, int> expected, found;
    for (const Json& action : plan.at("actions"))
      for (const char* where : {"0 2", "0 3", "1 2", "1 3"})
        ++expected[action.at("name").get<std::string>() + " " +
                   action.at("stream").get<std::string>() + " " + where];
    for (const Json& event : trace.at("traceEvents"))
      if (event.at("ph") == "X")
        ++found[event.at("name").get<std::string>() + " " +
                stream_names.at(event.at("tid").get<std::size_t>()) + " " +
                std::to_string(event.at("pid").get<int>()) + " " +
                std::to_string(event.at("args").at("step").get<int>())];
    EXPECT_EQ(found, expected);
  }
}

TEST_F(Programs, TracesOfRunsThatEndEarlyAreWhole) {
  // The last steps of many never come; nor does a second step where there is one.
  train(1, "one-step", {"output.trace=5", "training.steps=1", "training.validate_every=0"});
  EXPECT_TRUE(Json::accept(read_bytes(path("one-step/trace.json"))));
  train(1, "stopped",
        {"output.trace=100000", "training.steps=100000", "training.validate_every=0",
         "training.time_limit_minutes=0.01"});
  EXPECT_TRUE(Json::accept(read_bytes(path("stopped/trace.json"))));
  // A run without a trace leaves none of another run.
  train(1, "stopped");
  EXPECT_FALSE(fs::exists(path("stopped/trace.json")));
}

TEST_F(Programs, WeightsOfAnEarlierRunAreKeptApart) {
  train(1, "twice");
  const std::string first = read_bytes(path("twice/weights.h5"));
  const Texts small = {"small.yaml", "--set", "output.directory=twice", "--set"};
  const auto start_again = [&](const std::string& setting) {
    Texts arguments = small;
    arguments.push_back(setting);
    return start("ostrakon-train", 1, arguments);
  };
  // Refused before it begins, a run leaves all as it was.
  EXPECT_NE(start_again("data.path=missing.h5").status, 0);
  EXPECT_TRUE(read_bytes(path("twice/weights.h5")) == first);
  // One that fails in its first step has none of its own.
  EXPECT_NE(start_again("model.initializer_deviation=1e30").status, 0);
  EXPECT_FALSE(fs::exists(path("twice/weights.h5")));
  EXPECT_TRUE(read_bytes(path("twice/weights.previous.h5")) == first);
  train(1, "twice");
  const std::string second = read_bytes(path("twice/weights.h5"));
  EXPECT_EQ(start_again("training.seed=7").status, 0);
  EXPECT_TRUE(read_bytes(path("twice/weights.previous.h5")) == first);
  EXPECT_TRUE(read_bytes(path("twice/weights.previous-2.h5")) == second);
  EXPECT_TRUE(fs::exists(path("twice/weights.h5")));
}

TEST_F(Programs, TheWrittenDeckRepeatsTheRun) {
  const std::vector<Json> first = train(2, "first", {"training.seed=7", "model.bias=true"});
  const std::vector<Json> again = train(2, "again", {}, "first/deck.yaml");
  EXPECT_EQ(results(again), results(first));
  // From anywhere: its paths are absolute.
  fs::create_directories(path("elsewhere"));
  fs::rename(path("first/deck.yaml"), path("elsewhere/deck.yaml"));
  EXPECT_EQ(results(train(1, "third", {}, "elsewhere/deck.yaml")), results(first));
  EXPECT_NE(results(train(1, "other-seed")), results(first));
}

TEST_F(Programs, KokkosToolsSeeThePlanAndTheArena) {
  const Outcome outcome =
      start("ostrakon-train", 1, {"small.yaml", "--set", "output.directory=tool"},
            {{"KOKKOS_PROFILE_LIBRARY", OSTRAKON_REGION_TOOL},
             {"KOKKOS_TOOLS_LIBS", OSTRAKON_REGION_TOOL},
             {"OSTRAKON_TOOL_LOG", path("tool.log")}});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  // By region_tool.cpp. What comes first differs from Kokkos to Kokkos, and may be an arena.
  const std::string log = "\n" + read_bytes(path("tool.log"));
  const std::vector<Json> rows = read_rows("tool");
  expect_kept_promises(rows);
  for (const char* line :
       {"push ostrakon: load(micro-batch 0)\n", "push ostrakon: forward(block.0, micro-batch 0)\n",
        "push ostrakon: backward(block.1, micro-batch 7)\n", "push ostrakon: optimize(head)\n"})
    EXPECT_HAS(log, line);
  // Together the arenas have what was planned, and both are given back.
  std::int64_t arenas = 0;
  for (const std::string arena : {"ostrakon arena ", "ostrakon host arena "}) {
    const std::size_t at = log.find("\nallocate " + arena);
    ASSERT_NE(at, std::string::npos) << arena;
    const std::size_t number = at + 1 + std::string("allocate " + arena).size();
    const std::string bytes = log.substr(number, log.find('\n', number) - number);
    arenas += std::stoll(bytes);
    EXPECT_HAS(log, "\ndeallocate " + arena + bytes + "\n") << arena;
  }
  EXPECT_EQ(arenas, rows[0].at("planned_peak_bytes").get<std::int64_t>());

  std::istringstream stream(log);  // every region ends
  int depth = 0;
  for (std::string line; std::getline(stream, line);) {
    if (line.rfind("push ", 0) == 0) ++depth;
    if (line == "pop") --depth;
    ASSERT_GE(depth, 0);
  }
  EXPECT_EQ(depth, 0);
}

}  // namespace
}  // namespace ostrakon::testing
