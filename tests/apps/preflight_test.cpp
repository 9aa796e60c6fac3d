// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "fixtures.hpp"

namespace ostrakon::testing {
namespace {

namespace fs = std::filesystem;

class PreflightProgram : public SharedFolder<PreflightProgram> {
 protected:
  static void SetUpTestSuite() { write_bytes(path("deck.yaml"), digest_deck(2)); }

  /// What is found besides speeds, which are those of a busy machine.
  static std::vector<std::string> sure_findings(const nlohmann::json& report) {
    std::vector<std::string> found;
    for (const nlohmann::json& one : report.at("findings")) {
      const std::string what = one.at("what"), check = one.at("check");
      const bool is_speed = what.find(" below the median of ") != std::string::npos;
      if (!is_speed) found.push_back(check + ": " + what);
    }
    return found;
  }
};

TEST_F(PreflightProgram, ReportsRatesOfAllRanksAndWritesHosts) {
  const Outcome outcome =
      start("ostrakon-bench",
            {"preflight", "deck.yaml", "--json", "--seconds", "0.02", "--hostfile", "hosts",
             "--machine", OSTRAKON_SOURCE_DIR "/machines/h200-kernels-best.yaml"},
            2);
  const nlohmann::json report = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(outcome.status, report.at("faults") == 0 ? 0 : 3) << outcome.err;
  // A core is not a GPU; that is all that is wrong.
  bool is_below_machine = false;
  for (const std::string& one : sure_findings(report)) {
    EXPECT_NE(one.find("the machine file says"), std::string::npos) << one;
    is_below_machine = is_below_machine || one.rfind("products: ", 0) == 0;
  }
  EXPECT_TRUE(is_below_machine);
  std::vector<std::string> names;
  for (const nlohmann::json& check : report.at("checks")) {
    names.push_back(check.at("name"));
    for (const auto& [name, rates] : check.at("rates").items()) EXPECT_EQ(rates.size(), 2U) << name;
  }
  EXPECT_EQ(names, (std::vector<std::string>{"versions", "products", "steps", "memory", "clock",
                                             "links", "collectives", "network", "folder"}));
  EXPECT_FALSE(report.at("checks")[6].at("rates").empty());
  for (const auto& [name, rates] : report.at("checks")[6].at("rates").items())
    EXPECT_NE(name.find(" over 2 ranks of shard"), std::string::npos) << name;
  EXPECT_TRUE(fs::exists(path("hosts")));
}

TEST_F(PreflightProgram, AnotherProgramOnOneRankIsFound) {
  const std::string bench = OSTRAKON_APPS_DIR "/ostrakon-bench";
  fs::create_directory(path("other"));
  std::string program = read_bytes(bench);
  // The note with the build id: sizes, its kind, its owner, then the id.
  const std::string note("\x14\0\0\0\x03\0\0\0GNU\0", 12);
  const std::size_t at = program.find(note);
  ASSERT_NE(at, std::string::npos);
  program[at + note.size()] ^= 1;
  write_bytes(path("other/ostrakon-bench"), program);
  fs::permissions(path("other/ostrakon-bench"), fs::perms::owner_all);
  Command command =
      mpi_job("ostrakon-bench", 1, {"preflight", "--json", "--seconds", "0.02"}, path(""));
  for (const std::string& word :
       {std::string(":"), std::string(OSTRAKON_MPIEXEC_NUMPROC_FLAG), std::string("1"),
        path("other/ostrakon-bench"), std::string("preflight"), std::string("--json"),
        std::string("--seconds"), std::string("0.02")})
    command.arguments.push_back(word);
  const Outcome outcome = run_command(command);
  EXPECT_EQ(outcome.status, 3) << outcome.err;
  const std::vector<std::string> found = sure_findings(nlohmann::json::parse(outcome.out));
  ASSERT_EQ(found.size(), 1U) << outcome.out;
  EXPECT_EQ(found[0].rfind("versions: program: build ", 0), 0U) << found[0];
}

TEST_F(PreflightProgram, ARunBeginsOnlyWhereNothingIsFound) {
  const auto train = [](const std::string& folder, const std::string& preflight) {
    return start("ostrakon-train", {"deck.yaml", "--set", "output.directory=" + folder, "--set",
                                    "runtime.preflight=" + preflight});
  };
  const Outcome refused = train("/proc/run", "true");
  EXPECT_EQ(refused.status, 1);
  expect_in(refused.err, {"runtime.preflight = true: ", " faults found before step 1",
                          "fault: folder, ", "/proc/.ostrakon-preflight-"});
  const Outcome checked = train("checked", "true"), plain = train("plain", "false");
  EXPECT_EQ(checked.status, 0) << checked.err;
  expect_in(checked.out, {"preflight: nothing wrong found"});
  EXPECT_EQ(plain.out.find("preflight: "), std::string::npos);
  const auto digest = [](const std::string& folder) {
    const std::string rows = read_bytes(path(folder + "/metrics.jsonl"));
    return nlohmann::json::parse(rows.substr(0, rows.find('\n'))).at("state_digest");
  };
  EXPECT_EQ(digest("checked"), digest("plain"));
}

}  // namespace
}  // namespace ostrakon::testing
