// SPDX-License-Identifier: Apache-2.0

// The programs from one end to the other, as a user runs them: text, data, training, sampling.

#include <gtest/gtest.h>
#include <mpi.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "command.hpp"
#include "programs_fixture.hpp"
#include "support/messages.hpp"
#include "support/trials.hpp"

namespace ostrakon::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

TEST_F(Programs, DataIsBuiltAndSound) {
  EXPECT_EQ(build_.status, 0) << build_.err;
  EXPECT_HAS(build_.out, "--set data.path=text-train.h5");
  EXPECT_HAS(output_of("ostrakon-data", 1, {"verify", "text-train.h5"}), "is sound");
  EXPECT_HAS(output_of("ostrakon-data", 1, {"info", "sentence-train.h5"}), "documents     20\n");
  EXPECT_HAS(output_of("ostrakon-data", 1, {"show", "sentence-train.h5"}), sentence);
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
  EXPECT_HAS(too_low, "MFU <= 100 %");
  EXPECT_HAS(too_low, "runtime.peak_gflops = 0.0001 is too low, steps reached");
  // More than any reaches.
  const std::string high = run("1e9");
  for (const Json& row : read_rows("mfu")) EXPECT_FALSE(row.contains("mfu_uncertain")) << row;
  EXPECT_LACKS(high, "<=");
  EXPECT_HAS(high, "peak 1e+09 GFLOP/s a rank, as runtime.peak_gflops says; MFU of all steps");
}

// The other rank is left in a collective: the job must end all the same, however streams run.
TEST_F(Programs, ACollectiveThatFailsOnOneRankEndsTheJob) {
  const std::vector<std::string> calls = {"3", "7", "8", "12"};
  const std::vector<std::string> of_inline = {"3", "8"}, of_threads = {"7", "12"};
  for (const std::string streams : {"inline", "threads"})
    for (const std::string& call : tests::takes_every_case() ? calls
                                   : streams == "inline"     ? of_inline
                                                             : of_threads) {
      const Outcome outcome =
          start("ostrakon-train", 2,
                {"small.yaml", "--set", "output.directory=failing", "--set",
                 "parallel.node_windows=never", "--set", "runtime.streams=" + streams},
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

TEST_F(Programs, ADryRunShowsThePlanAndWritesNothing) {
  const std::string out =
      output_of("ostrakon-train", 2, {"small.yaml", "--dry-run", "--set", "output.directory=dry"});
  for (const char* part : {"rank  host", "settings", "parameters", "plan of a step", "activations",
                           "optimizer state", "dry run"})
    EXPECT_HAS(out, part);
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
    EXPECT_HAS(help, name);
    EXPECT_EQ(help.find("the last value counts") != std::string::npos,
              help.find("--set") != std::string::npos);
    EXPECT_EQ(output_of(name, 1, {"--version"}).rfind(std::string(name) + " ", 0), 0U);
  }
}

TEST_F(Programs, ARankThatCannotReadItsDataEndsTheRunForAll) {
  std::string bytes = read_bytes(path("text-train.h5"));
  const std::string harbour("h\0a\0r\0b\0", 8);  // tokens have two bytes each
  ASSERT_HAS(bytes, harbour);
  bytes[bytes.find(harbour)] = 'H';
  write_bytes(path("flipped.h5"), bytes);
  Command command = program("ostrakon-train", 2,
                            {"small.yaml", "--set", "data.path=flipped.h5", "--set",
                             "data.verify=false", "--set", "output.directory=flipped"},
                            path(""));
  const Outcome outcome = run_command(command);
  EXPECT_FALSE(outcome.timed_out) << "hang";
  EXPECT_EQ(outcome.status, 1);
  EXPECT_HAS(outcome.err, "ostrakon-train: error: ");
  EXPECT_HAS(outcome.err, "/flipped.h5'");
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

}  // namespace
}  // namespace ostrakon::testing
