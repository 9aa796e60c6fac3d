// SPDX-License-Identifier: Apache-2.0

// ostrakon-scale as a user runs it: a study planned, run, collected and reported.

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "fixtures.hpp"
#include "stand_in_python.hpp"
#include "support/messages.hpp"

namespace ostrakon::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Texts = std::vector<std::string>;

class Scale : public ::testing::Test {
 protected:
  static constexpr const char* deck = R"(ostrakon:
  model: {layers: 2, width: 32, heads: 4, vocabulary: 257}
  data: {dataset: synthetic}
  training: {steps: 100, global_batch_size: 8, micro_batch_size: 2, sequence_length: 32, validate_every: 10}
  checkpoint: {every: 10}
  output: {directory: elsewhere}
)";

  Scale() { write_bytes(path("small.yaml"), deck); }

  std::string path(const std::string& name) const { return folder_.file(name); }

  Outcome run(Texts arguments) const {
    arguments.insert(arguments.begin(), OSTRAKON_APPS_DIR "/ostrakon-scale");
    Command command;
    command.arguments = std::move(arguments);
    command.folder = path(".");
    command.environment.push_back(stand_in_python(path("."), python_status_));
    return run_command(command);
  }
  std::string output_of(const Texts& arguments) const {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return outcome.out;
  }
  void expect_refused(const Texts& arguments, const std::string& words) const {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.status, 1) << words;
    EXPECT_EQ(outcome.err.rfind("ostrakon-scale: error: ", 0), 0u) << outcome.err;
    EXPECT_EQ(outcome.err.find('\n'), outcome.err.size() - 1) << outcome.err;
    EXPECT_HAS(outcome.err, words);
  }

  ScratchFolder folder_;
  int python_status_ = 0;  ///< of the Python that draws
};

TEST_F(Scale, PlansAStudyOfStrongScaling) {
  const std::string out =
      output_of({"plan", "small.yaml", "--ranks", "1,2,4", "--output", "a/study", "--steps", "9",
                 "--repeat=2", "--set", "model.layers=3", "--set", "model.heads=2"});
  expect_in(out, {"strong scaling of small.yaml, 2 runs of 9 steps on each number of ranks, steps "
                  "2 to 9 traced",
                  "no prediction: give a machine file", "bash a/study/run-all.sh"});
  const Json study = Json::parse(read_bytes(path("a/study/study.json")));
  EXPECT_EQ(study["sizes"].size(), 3u);
  EXPECT_EQ(study["sizes"][2]["global_batch_size"], 8);
  EXPECT_EQ(study["sizes"][2]["tokens_per_step"], 256);
  EXPECT_EQ(study["sizes"][2]["runs"], Json({"ranks-4/run-1", "ranks-4/run-2"}));
  EXPECT_TRUE(study["sizes"][2]["prediction"].is_null());
  EXPECT_GT(study["sizes"][2]["bytes_inside_nodes"], 0);
  EXPECT_EQ(study["sizes"][2]["bytes_across_nodes"], 0);
  expect_in(read_bytes(path("a/study/ranks-4/deck.yaml")),
            {"# Written by ostrakon-scale plan, for 4 ranks.\n", " layers: 3 ", " heads: 2 ",
             " steps: 9 ", " global_batch_size: 8 ", " validate_every: 0 ", " every: 0 ",
             " directory: \"run-1\"", " trace: 8 ", " paths_from: deck "});
  expect_in(read_bytes(path("a/study/ranks-4/job.sh")),
            {"mpiexec -n 4 " OSTRAKON_APPS_DIR "/ostrakon-train deck.yaml", "for run in 1 2; do"});
  expect_in(read_bytes(path("a/study/run-all.sh")), {"(cd ranks-1 && bash job.sh)\n"});
  expect_refused({"plan", "small.yaml", "--ranks", "1", "--output", "a/study"},
                 "'a/study/study.json' exists: the folder has a study already");
}

TEST_F(Scale, PlansAStudyOfWeakScalingOverNodes) {
  const std::string out =
      output_of({"plan", "small.yaml", "--ranks=2,4,8", "--scaling", "weak", "--ranks-per-node",
                 "4", "--launcher", "slurm", "--time", "90", "--output", "weak", "--machine",
                 OSTRAKON_SOURCE_DIR "/machines/h100-infiniband.yaml"});
  EXPECT_LACKS(out, "no prediction");
  const Json study = Json::parse(read_bytes(path("weak/study.json")));
  EXPECT_EQ(study["sizes"][0]["global_batch_size"], 8);
  EXPECT_EQ(study["sizes"][2]["global_batch_size"], 32);
  EXPECT_EQ(study["sizes"][0]["nodes"], 1);
  EXPECT_EQ(study["sizes"][2]["nodes"], 2);
  EXPECT_GT(study["sizes"][2]["bytes_across_nodes"], 0);
  const Json& prediction = study["sizes"][2]["prediction"];
  double sum = 0.0;
  for (const char* part : {"compute", "communication", "host", "copies", "waiting"})
    sum += prediction[part].get<double>();
  EXPECT_NEAR(sum, prediction["step_seconds"].get<double>(), 1e-9);
  EXPECT_GT(sum, 0.0);
  expect_in(prediction["source"].get<std::string>(), {"H100 SXM 80 GB"});
  expect_in(read_bytes(path("weak/ranks-8/job.sh")),
            {"#SBATCH --nodes=2\n", "#SBATCH --ntasks-per-node=4\n", "#SBATCH --time=01:30:00\n"});
  expect_in(read_bytes(path("weak/ranks-2/job.sh")),
            {"#SBATCH --nodes=1\n", "#SBATCH --ntasks-per-node=2\n"});
  for (const auto& [launcher, limit] :
       {std::pair{"pbs", "walltime=26:00:00\n"}, std::pair{"flux", "-t 1560m\n"}}) {
    output_of({"plan", "small.yaml", "--ranks", "1", "--launcher", launcher, "--time", "1-2",
               "--output", launcher});
    expect_in(read_bytes(path(std::string(launcher) + "/ranks-1/job.sh")), {limit});
  }
}

TEST_F(Scale, PredictsNoTimeBelowZero) {
  // One rank, which communicates for 0 seconds, give or take what sums of its times round.
  std::string machine = read_bytes(OSTRAKON_SOURCE_DIR "/machines/cpu-cluster.yaml");
  const std::string host = "  host:\n";
  machine.insert(machine.find(host) + host.size(), "    step_microseconds: 79.1268\n");
  write_bytes(path("machine.yaml"), machine);
  for (const char* batch : {"2", "8", "16"}) {
    output_of({"plan", "small.yaml", "--ranks", "1", "--output", batch, "--machine", "machine.yaml",
               "--set", text("training.global_batch_size=", batch)});
    const Json study = Json::parse(read_bytes(path(text(batch, "/study.json"))));
    EXPECT_GE(study["sizes"][0]["prediction"]["communication"].get<double>(), 0.0) << batch;
  }
}

TEST_F(Scale, RefusesWhatCannotBePlanned) {
  const auto plan = [](const Texts& more) {
    Texts arguments = {"plan", "small.yaml", "--output", "x"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  };
  expect_refused({}, "no command; expected plan, collect or report");
  expect_refused({"plot"}, "unknown command 'plot'; expected plan, collect or report");
  expect_refused({"plan", "--ranks", "1", "--output", "x"}, "no DECK given");
  expect_refused({"plan", "nowhere.yaml", "--ranks", "1", "--output", "x"}, "nowhere.yaml");
  expect_refused({"plan", "small.yaml", "--ranks", "1"}, "plan needs --output DIR");
  expect_refused(plan({}), "plan needs --ranks N,N,...");
  expect_refused(plan({"--ranks", "4,2"}), "--ranks is \"4,2\"; expected increasing numbers");
  expect_refused(plan({"--ranks", "1,3"}),
                 "on 3 ranks: training.global_batch_size / training.micro_batch_size = 8 / 2 = 4 "
                 "leaves");
  expect_refused(plan({"--ranks", "2,3", "--scaling", "weak", "--set",
                       "training.global_batch_size=5", "--set", "training.micro_batch_size=1"}),
                 "training.global_batch_size = 5 on 2 ranks would be 5 x 3 / 2 on 3 ranks");
  expect_refused(plan({"--ranks", "1", "--scaling", "medium"}),
                 "--scaling medium: expected strong or weak");
  expect_refused(plan({"--ranks", "1", "--launcher", "lsf"}),
                 "--launcher lsf: expected mpiexec, slurm, pbs or flux");
  expect_refused(plan({"--ranks", "4", "--ranks-per-node", "3"}), "does not divide the 4 ranks");
  expect_refused(plan({"--ranks", "1", "--time", "soon"}), "--time soon: expected minutes");
  expect_refused(plan({"--ranks", "1", "--steps", "2"}), "--steps 2: expected an integer from 4");
  expect_refused(plan({"--ranks", "1", "--machine", "none.yaml"}), "none.yaml: can't be read");
  expect_refused(plan({"--ranks", "1", "--set", "training.steps=5"}),
                 "the study sets training.steps; expected --steps N");
  expect_refused(plan({"--ranks", "1", "--set", "model.layer=5"}), "did you mean model.layers?");
  expect_refused(plan({"--ranks", "1", "--template", "small.yaml"}),
                 "small.yaml: has no @PROGRAM@");
  EXPECT_FALSE(fs::exists(path("x")));
  expect_refused({"collect", "x"}, "'x/study.json' does not exist");
  expect_refused({"report", "x"}, "'x/collected.json' does not exist");
}

TEST_F(Scale, AStudyFromNothingToAReport) {
  output_of({"plan", "small.yaml", "--ranks", "1,2", "--output", "study", "--steps", "10",
             "--machine", OSTRAKON_SOURCE_DIR "/machines/h100-infiniband.yaml"});
  expect_refused({"collect", "study"},
                 "'study/ranks-1/run-1/metrics.jsonl' does not exist: the run has not begun");
  // Its environment, with ranks that may outnumber cores.
  Command jobs = mpi_job("ostrakon-train", 2, {}, path("."));
  jobs.arguments = {"/bin/bash", "study/run-all.sh"};
  const Outcome ran = run_command(jobs);
  ASSERT_EQ(ran.status, 0) << ran.err;
  // Lines for other tools at the end of each run.
  expect_in(ran.out, {"\nfigure: step_seconds ", "\nfigure: tokens_per_second ",
                      "\nfigure: tokens_per_second_per_rank ", "\nfigure: mfu "});
  expect_in(output_of({"collect", "study"}), {"collected 2 runs"});
  const std::string out = output_of({"report", "study"});
  expect_in(out, {"figure: ranks_1.efficiency 100 %\n", "figure: ranks_2.speedup "});
  // Memory was as planned.
  EXPECT_LACKS(out, "memory:");
  const Json collected = Json::parse(read_bytes(path("study/collected.json")));
  const auto efficiency = collected["runs"][1]["tokens_per_second_per_rank"].get<double>() /
                          collected["runs"][0]["tokens_per_second_per_rank"].get<double>();
  double product = 1.0;
  for (const auto& [name, value] : collected["runs"][1]["factors"].items())
    product *= value.get<double>() / collected["runs"][0]["factors"][name].get<double>();
  EXPECT_NEAR(product, efficiency, 1e-6 * efficiency);
  for (const Json& one : collected["runs"]) {
    EXPECT_EQ(one["traced_steps"], 8);
    EXPECT_GT(one["shares"]["compute"], 0.0);
  }
  EXPECT_EQ(read_bytes(path("drawn")),
            "-m ostrakon_report study study/collected.json -o study/report.html -o "
            "study/report.md\n");
  for (const char* file : {"report.csv", "collected.csv"})
    EXPECT_TRUE(fs::exists(path(std::string("study/") + file))) << file;
  EXPECT_NEAR(collected["points"][1]["efficiency"]["mean"].get<double>(), efficiency, 1e-9);
  python_status_ = 1;
  const Outcome undrawn = run({"report", "study"});
  EXPECT_EQ(undrawn.status, 1);
  expect_in(undrawn.out, {"figure: ranks_1.efficiency 100 %\n"});
  expect_in(undrawn.err, {"error: can't draw \"study/report.html\": python3: No module named",
                          "ostrakon-report study study/collected.json -o "});
  python_status_ = 0;
  // A run that is lost.
  fs::remove(path("study/ranks-1/run-1/trace.json"));
  expect_refused({"collect", "study"}, "study/ranks-1/run-1/trace.json' does not exist");
  expect_in(output_of({"collect", "study", "--partial"}), {"missing: ranks-1/run-1: "});
  expect_in(output_of({"report", "study"}), {"missing: ranks-1/run-1", "ranks_2.efficiency 100 %"});
}

}  // namespace
}  // namespace ostrakon::testing
