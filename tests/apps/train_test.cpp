// SPDX-License-Identifier: Apache-2.0

// The programs from one end to the other, as a user runs them: text, data, training, sampling.

#include <gtest/gtest.h>
#include <mpi.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <ostrakon/math/portability.hpp>
#include <sstream>
#include <string>
#include <support/scratch_folder.hpp>
#include <vector>

#include "command.hpp"
#include "fixtures.hpp"

namespace ostrakon::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Texts = std::vector<std::string>;

const std::string sentence = "The old lighthouse keeper counts seven white ships before dawn. ";

const char* const small_deck = R"(ostrakon:
  model: {layers: 2, width: 32, heads: 4, kv_heads: 2, vocabulary: 257}
  data:
    path: text-train.h5
    validation_path: text-validation.h5
  training:
    steps: 4
    global_batch_size: 8
    micro_batch_size: 1
    sequence_length: 24
    validate_every: 2
    validation_batches: 2
  optimizer: {learning_rate: 3e-3}
  output: {digest_every: 1}
)";

/// Learns `sentence` by heart in a second or two.
const char* const memory_deck = R"(ostrakon:
  model: {layers: 2, width: 64, heads: 4, vocabulary: 257}
  data: {path: sentence-train.h5}
  training: {steps: 200, global_batch_size: 8, micro_batch_size: 4, sequence_length: 48}
  optimizer: {learning_rate: 4e-3}
  schedule: {warmup_steps: 10}
  output: {directory: memory}
)";

std::string repeat(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

/// A folder with data sets and decks, shared by all tests; each writes to folders of its own.
class Programs : public SharedFolder<Programs> {
 protected:
  static void SetUpTestSuite() {
    std::string text;
    for (int i = 0; i < 100; ++i)
      text += "Ship " + std::to_string(i * 37 % 101) + " carries salt to harbour " +
              std::to_string(i % 7) + ".\n%\n";
    write_bytes(path("text.txt"), text);
    write_bytes(path("sentence.txt"), repeat(repeat(sentence, 5) + "\n%\n", 20));
    write_bytes(path("small.yaml"), small_deck);
    write_bytes(path("memory.yaml"), memory_deck);
    build_ = start("ostrakon-data", 1,
                   {"build", "--output", "text", "--validation-fraction", "0.3", "--separator", "%",
                    "text.txt"});
    start("ostrakon-data", 1,
          {"build", "--output", "sentence", "--validation-fraction", "0", "--separator", "%",
           "sentence.txt"});
  }

  static Outcome start(const std::string& name, int ranks, const Texts& arguments,
                       const std::vector<std::pair<std::string, std::string>>& environment = {}) {
    Command command = program(name, ranks, arguments, path(""));
    command.environment.insert(command.environment.end(), environment.begin(), environment.end());
    return run_command(command);
  }

  /// Runs that must do well.
  static std::string output_of(const std::string& name, int ranks, const Texts& arguments) {
    const Outcome outcome = start(name, ranks, arguments);
    EXPECT_EQ(outcome.status, 0) << name << "\n" << outcome.err;
    return outcome.out;
  }

  /// Trains the small deck into `output` and returns the rows of metrics.jsonl.
  static std::vector<Json> train(int ranks, const std::string& output, Texts settings = {},
                                 const std::string& deck = "small.yaml") {
    Texts arguments = {deck};
    settings.push_back("output.directory=" + output);
    for (const std::string& setting : settings) {
      arguments.push_back("--set");
      arguments.push_back(setting);
    }
    output_of("ostrakon-train", ranks, arguments);
    return read_rows(output);
  }

  static std::vector<Json> read_rows(const std::string& output) {
    std::istringstream stream(read_bytes(path(output + "/metrics.jsonl")));
    std::vector<Json> rows;
    for (std::string line; std::getline(stream, line);) rows.push_back(Json::parse(line));
    return rows;
  }

  static std::string generate(const Texts& options) {
    static const bool trained = [] {
      output_of("ostrakon-train", 1, {"memory.yaml"});
      return true;
    }();
    EXPECT_TRUE(trained);
    Texts arguments = {"memory/weights.h5"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    return output_of("ostrakon-generate", 1, arguments);
  }

  static inline Outcome build_;
};

/// What no layout may change, of every row.
std::vector<Json> results(const std::vector<Json>& rows) {
  std::vector<Json> kept;
  for (const Json& row : rows) {
    Json one;
    for (const char* field : {"step", "loss", "grad_norm", "learning_rate", "tokens",
                              "state_digest", "validation_loss", "bits_per_byte"})
      if (row.contains(field)) one[field] = row[field];
    kept.push_back(one);
  }
  return kept;
}

void expect_kept_promises(const std::vector<Json>& rows) {
  for (const Json& row : rows) {
    if (row.contains("validation_loss")) continue;
    const auto planned = row.at("planned_peak_bytes").get<std::int64_t>();
    EXPECT_GT(planned, 0);
    EXPECT_EQ(row.at("peak_bytes").get<std::int64_t>(), planned) << row;
    if (row.at("step") > 1) {
      EXPECT_EQ(row.at("allocations"), 0) << row;
    }
#ifndef __SANITIZE_ADDRESS__  // which keeps a shadow of all memory
    EXPECT_LT(row.at("resident_bytes").get<std::int64_t>() - planned, 150'000'000) << row;
#endif
  }
}

TEST_F(Programs, DataIsBuiltAndSound) {
  EXPECT_EQ(build_.status, 0) << build_.err;
  EXPECT_NE(build_.out.find("--set data.path=text-train.h5"), std::string::npos) << build_.out;
  EXPECT_NE(output_of("ostrakon-data", 1, {"verify", "text-train.h5"}).find("is sound"),
            std::string::npos);
  EXPECT_NE(output_of("ostrakon-data", 1, {"info", "sentence-train.h5"}).find("documents     20\n"),
            std::string::npos);
  EXPECT_NE(output_of("ostrakon-data", 1, {"show", "sentence-train.h5"}).find(sentence),
            std::string::npos);
}

TEST_F(Programs, MetricsHaveTheDocumentedFields) {
  const std::vector<Json> rows = train(1, "fields");
  ASSERT_EQ(rows.size(), 6U);  // four steps and, after the second and the fourth, validations
  for (const std::size_t step : {0U, 1U, 3U, 4U}) {
    const Json& row = rows[step];
    for (const char* field : {"step", "loss", "grad_norm", "learning_rate", "tokens",
                              "step_seconds", "tokens_per_second", "mfu", "planned_peak_bytes",
                              "peak_bytes", "allocations", "resident_bytes"})
      EXPECT_TRUE(row.contains(field) && row[field].is_number()) << field << " in " << row;
    EXPECT_TRUE(row.at("state_digest").is_string()) << row;
    EXPECT_GT(row.at("mfu"), 0.0);
  }
  for (const std::size_t validation : {2U, 5U}) {
    const Json& row = rows[validation];
    EXPECT_EQ(row.at("step"), rows[validation - 1].at("step"));
    const double loss = row.at("validation_loss");
    EXPECT_GT(row.at("bits_per_byte").get<double>(), loss / std::log(2.0));  // ends of text
  }
  EXPECT_EQ(rows[4].at("tokens"), 4 * 8 * 24);
  EXPECT_NE(rows[0].at("state_digest"), rows[1].at("state_digest"));
  EXPECT_LT(rows[4].at("loss"), rows[0].at("loss"));
  EXPECT_TRUE(fs::exists(path("fields/weights.h5")));
}

TEST_F(Programs, MfuIsNeverAboveOneInSilence) {
  const auto run = [](const std::string& gigaflops) {
    return output_of("ostrakon-train", 1,
                     {"small.yaml", "--set", "output.directory=mfu", "--set",
                      "runtime.peak_gflops=" + gigaflops, "--set", "output.every=1"});
  };
  // Less than any machine reaches, as if it had been measured while other work ran.
  const std::string too_low = run("0.0001");
  int steps = 0;
  for (const Json& row : read_rows("mfu")) {
    if (row.contains("validation_loss")) continue;
    ++steps;
    EXPECT_GT(row.at("mfu"), 0.0) << row;
    EXPECT_LE(row.at("mfu"), 1.0) << row;
    EXPECT_EQ(row.value("mfu_uncertain", false), true) << row;
  }
  EXPECT_EQ(steps, 4);
  EXPECT_NE(too_low.find("MFU <= 100 %"), std::string::npos) << too_low;
  EXPECT_NE(too_low.find("runtime.peak_gflops = 0.0001 is too low, steps reached"),
            std::string::npos)
      << too_low;
  // More than any reaches.
  const std::string high = run("1e9");
  for (const Json& row : read_rows("mfu")) EXPECT_FALSE(row.contains("mfu_uncertain")) << row;
  EXPECT_EQ(high.find("<="), std::string::npos) << high;
  EXPECT_NE(high.find("peak 1e+09 GFLOP/s a rank, as runtime.peak_gflops says; MFU of all steps"),
            std::string::npos)
      << high;
}

TEST_F(Programs, LayoutsGiveTheSameBitsAndKeepToThePlan) {
  const std::vector<Json> expected = train(1, "np1");
  expect_kept_promises(expected);
  for (const char* sharding : {"full", "none"})
    for (const int ranks : {1, 2, 4}) {
      SCOPED_TRACE(std::string(sharding) + " on " + std::to_string(ranks));
      const std::vector<Json> rows =
          train(ranks, "bits", {std::string("parallel.sharding=") + sharding});
      EXPECT_EQ(results(rows), results(expected));
      expect_kept_promises(rows);
    }
}

// How many run kernels is Kokkos' choice, and the matrix library follows it.
TEST_F(Programs, TheMatrixLibraryHasAsManyThreadsAsKernels) {
#if defined(KOKKOS_ENABLE_OPENMP) && !OSTRAKON_ON_DEVICE
  const std::string kernels = "2";
#else
  const std::string kernels = "1";
  if (on_device) GTEST_SKIP() << "kernels run on the device";
#endif
  const auto shown = [](const Texts& settings) {
    Texts arguments = {"small.yaml", "--dry-run"};
    arguments.insert(arguments.end(), settings.begin(), settings.end());
    const Outcome outcome = start("ostrakon-train", 1, arguments, {{"OMP_NUM_THREADS", "2"}});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return outcome.out;
  };
  const auto expect_matrix_threads = [&](const std::string& out, const std::string& threads) {
    for (const std::string& line :
         {"\n  threads of a rank      " + kernels + " for kernels, " + threads +
              " for matrix products\n",
          "\n  sums over leaves       bit for bit those of one rank with " + threads +
              (threads == "1" ? " thread" : " threads") + " for matrix products\n"})
      EXPECT_NE(out.find(line), std::string::npos) << line << "\nin\n" << out;
  };
  expect_matrix_threads(shown({}), kernels);
  expect_matrix_threads(shown({"--set", "runtime.threads=1"}), "1");
  expect_matrix_threads(shown({"--set", "runtime.threads=3"}), "3");
}

TEST_F(Programs, KernelThreadsChangeNoBit) {
#if !defined(KOKKOS_ENABLE_OPENMP) || OSTRAKON_ON_DEVICE
  GTEST_SKIP() << "takes a Kokkos with OpenMP";
#endif
  for (const Texts& kind :
       {Texts{}, Texts{"precision.gather=bf16", "model.activation=gelu", "model.norm=layernorm"},
        Texts{"optimizer.name=muon", "parallel.sharding=gradients"},
        Texts{"model.positions=learned", "memory.offload=all", "optimizer.clip_norm=0"}}) {
    std::vector<std::vector<Json>> runs;
    for (const char* threads : {"1", "2", "3"}) {
      const std::string folder = std::string("kernels-") + threads;
      Texts arguments = {"small.yaml", "--set", "runtime.threads=1", "--set",
                         "output.directory=" + folder};
      for (const std::string& setting : kind) {
        arguments.push_back("--set");
        arguments.push_back(setting);
      }
      const Outcome outcome = start("ostrakon-train", 2, arguments,
                                    {{"OMP_NUM_THREADS", threads}, {"OMP_WAIT_POLICY", "passive"}});
      ASSERT_EQ(outcome.status, 0) << outcome.err;
      EXPECT_NE(outcome.out.find(std::string(threads) + " for kernels, 1 for matrix products"),
                std::string::npos)
          << outcome.out;
      runs.push_back(results(read_rows(folder)));
    }
    EXPECT_EQ(runs[1], runs[0]) << ::testing::PrintToString(kind);
    EXPECT_EQ(runs[2], runs[0]) << ::testing::PrintToString(kind);
  }
}

TEST_F(Programs, RanksThatShareUnevenlyAgreeToRounding) {
  const Texts six_leaves = {"training.global_batch_size=6"};
  const std::vector<Json> expected = train(1, "one", six_leaves);
  const std::vector<Json> rows = train(3, "three", six_leaves);
  expect_kept_promises(rows);
  ASSERT_EQ(rows.size(), expected.size());
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (const char* field : {"loss", "grad_norm", "validation_loss"})
      if (expected[i].contains(field)) {
        EXPECT_NEAR(rows[i].at(field), expected[i].at(field),
                    1e-5 * expected[i].at(field).get<double>());
      }
}

// The other rank is left in a collective: the job must end all the same, however streams run.
TEST_F(Programs, ACollectiveThatFailsOnOneRankEndsTheJob) {
  for (const char* streams : {"inline", "threads"})
    for (const char* call : {"3", "7", "8", "12"}) {
      const Outcome outcome =
          start("ostrakon-train", 2,
                {"small.yaml", "--set", "output.directory=failing", "--set",
                 std::string("runtime.streams=") + streams},
                {{"LD_PRELOAD", OSTRAKON_FAILING_MPI}, {"OSTRAKON_FAILING_CALL", call}});
      EXPECT_FALSE(outcome.timed_out) << streams << ", call " << call;
      EXPECT_NE(outcome.status, 0);
      const std::size_t error =
          outcome.err.find("ostrakon-train: error on rank 1: MPI_Allgather failed");
      ASSERT_NE(error, std::string::npos) << outcome.err;
#if defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION <= 4
      // MPI's own threads may find closed sockets while the job ends; libevent warns of them.
      std::istringstream lines(outcome.err.substr(error));
      std::string line;
      std::getline(lines, line);
      while (std::getline(lines, line))
        EXPECT_TRUE(line.empty() || line.rfind("[warn] ", 0) == 0) << outcome.err;
#endif
    }
}

TEST_F(Programs, TracesShowTheActionsOfThePlan) {
  for (const std::string streams : {"inline", "threads"}) {
    const std::string folder = "traced-" + streams;
    train(2, folder, {"output.trace=2", "runtime.streams=" + streams});
    const Json trace = Json::parse(read_bytes(path(folder + "/trace.json")));
    const Json plan = Json::parse(read_bytes(path(folder + "/plan.json")));
    // Every action, on both ranks, in steps 2 and 3, on its stream.
    const std::vector<std::string> stream_names = {"compute", "gather", "reduce"};
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

TEST_F(Programs, ADryRunShowsThePlanAndWritesNothing) {
  const std::string out =
      output_of("ostrakon-train", 2, {"small.yaml", "--dry-run", "--set", "output.directory=dry"});
  for (const char* part : {"rank  host", "settings", "parameters", "plan of a step", "activations",
                           "optimizer state", "dry run"})
    EXPECT_NE(out.find(part), std::string::npos) << part << " in\n" << out;
  EXPECT_FALSE(fs::exists(path("dry")));
}

TEST_F(Programs, DefaultsAreADeck) {
  const std::string defaults = output_of("ostrakon-train", 2, {"--print-defaults"});
  EXPECT_EQ(defaults.find("ostrakon:"), defaults.rfind("ostrakon:")) << "printed by one rank";
  write_bytes(path("defaults.yaml"), defaults);
  output_of("ostrakon-train", 1, {"defaults.yaml", "--dry-run", "--set", "data.dataset=synthetic"});
}

TEST_F(Programs, HelpAndVersion) {
  for (const char* name : {"ostrakon-train", "ostrakon-data", "ostrakon-generate"}) {
    const std::string help = output_of(name, 1, {"--help"});
    EXPECT_EQ(help.rfind("usage: ", 0), 0U) << help;
    EXPECT_NE(help.find(name), std::string::npos) << help;
    EXPECT_EQ(help.find("the last value counts") != std::string::npos,
              help.find("--set") != std::string::npos);
    EXPECT_EQ(output_of(name, 1, {"--version"}).rfind(std::string(name) + " ", 0), 0U);
  }
}

TEST_F(Programs, ARankThatCannotReadItsDataEndsTheRunForAll) {
  std::string bytes = read_bytes(path("text-train.h5"));
  const std::string harbour("h\0a\0r\0b\0", 8);  // tokens have two bytes each
  ASSERT_NE(bytes.find(harbour), std::string::npos);
  bytes[bytes.find(harbour)] = 'H';
  write_bytes(path("flipped.h5"), bytes);
  Command command = program("ostrakon-train", 2,
                            {"small.yaml", "--set", "data.path=flipped.h5", "--set",
                             "data.verify=false", "--set", "output.directory=flipped"},
                            path(""));
  const Outcome outcome = run_command(command);
  EXPECT_FALSE(outcome.timed_out) << "hang";
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.err.find("ostrakon-train: error: "), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("/flipped.h5'"), std::string::npos) << outcome.err;
}

TEST_F(Programs, AMemorisedSentenceComesBack) {
  const std::string text = repeat(sentence, 8);
  // The context is 48 tokens: the model forgets the beginning three times on the way.
  for (const std::size_t prompt : {12U, 40U, 64U, 100U}) {
    const std::string out =
        generate({"--temperature", "0", "--tokens", "150", "--prompt", text.substr(0, prompt)});
    EXPECT_EQ(out, text.substr(0, prompt + 150) + "\n") << "after a prompt of " << prompt;
  }
}

TEST_F(Programs, SamplesFollowTheirSeed) {
  const auto sample = [](const char* seed) {
    return generate({"--temperature", "3", "--tokens", "60", "--seed", seed, "--ignore-end"});
  };
  const std::string five = sample("5");
  EXPECT_EQ(sample("5"), five);
  EXPECT_NE(sample("6"), five);
  // The likeliest of one is the likeliest, at any temperature.
  EXPECT_EQ(generate({"--temperature", "3", "--top-k", "1", "--tokens", "20"}),
            generate({"--temperature", "0", "--tokens", "20"}));
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
    EXPECT_NE(log.find(line), std::string::npos) << line;
  // Together the arenas have what was planned, and both are given back.
  std::int64_t arenas = 0;
  for (const std::string arena : {"ostrakon arena ", "ostrakon host arena "}) {
    const std::size_t at = log.find("\nallocate " + arena);
    ASSERT_NE(at, std::string::npos) << arena;
    const std::size_t number = at + 1 + std::string("allocate " + arena).size();
    const std::string bytes = log.substr(number, log.find('\n', number) - number);
    arenas += std::stoll(bytes);
    EXPECT_NE(log.find("\ndeallocate " + arena + bytes + "\n"), std::string::npos) << arena;
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
