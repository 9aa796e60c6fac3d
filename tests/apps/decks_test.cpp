// SPDX-License-Identifier: Apache-2.0

// What the heads of the shipped decks say of memory and traffic, against the planner.

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <ostrakon/base/format.hpp>
#include <set>
#include <sstream>
#include <string>
#include <support/scratch_folder.hpp>
#include <vector>

#include "command.hpp"
#include "support/trials.hpp"

namespace ostrakon::testing {
namespace {

using Json = nlohmann::json;

std::string deck_path(const std::string& name) {
  return (std::filesystem::path(OSTRAKON_INPUT_DECKS) / (name + ".yaml")).string();
}

Outcome plan(const std::string& deck, const std::vector<std::string>& options) {
  Command command;
  command.arguments = {OSTRAKON_APPS_DIR "/ostrakon-plan", deck_path(deck)};
  command.arguments.insert(command.arguments.end(), options.begin(), options.end());
  return run_command(command);
}

Outcome plan(const std::string& deck, int ranks, std::vector<std::string> more) {
  more.insert(more.end(), {"--ranks", std::to_string(ranks), "--ranks-per-node", "8"});
  return plan(deck, more);
}

/// Cells of a line of a comment's table, which two spaces or more keep apart.
std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  std::size_t at = line.find_first_not_of("# ");
  while (at != std::string::npos) {
    const std::size_t end = line.find("  ", at);
    cells.push_back(line.substr(at, end == std::string::npos ? end : end - at));
    at = end == std::string::npos ? end : line.find_first_not_of(' ', end);
  }
  return cells;
}

/// The rows of the table in a deck's head.
std::vector<std::vector<std::string>> table_of(const std::string& deck) {
  std::istringstream lines(read_bytes(deck_path(deck)));
  std::vector<std::vector<std::string>> rows;
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    if (inside && line == "#") break;
    if (inside) rows.push_back(cells_of(line));
    if (line.find("ranks   device memory") == std::string::npos) continue;
    inside = true;
    EXPECT_EQ(cells_of(line),
              (std::vector<std::string>{"ranks", "device memory", "host memory",
                                        "sent inside a node", "sent across nodes"}));
  }
  return rows;
}

/// For what the command in a deck's head plans.
std::vector<std::string> device_of(const std::string& deck) {
  std::istringstream words(read_bytes(deck_path(deck)));
  std::vector<std::string> option;
  for (std::string word; option.size() != 2 && words >> word;)
    if (word == "--device" || !option.empty()) option.push_back(word);
  return option;
}

class Decks : public ::testing::TestWithParam<const char*> {};

TEST_P(Decks, HeadsSayWhatThePlannerSays) {
  const std::string deck = GetParam();
  const std::vector<std::vector<std::string>> rows = table_of(deck);
  ASSERT_GE(rows.size(), 2u);
  ASSERT_EQ(device_of(deck).size(), 2u);
  std::set<std::string> of_ranks;
  for (const std::vector<std::string>& row : rows) {
    ASSERT_EQ(row.size(), 5u);
    std::string digits;
    for (char c : row[0])
      if (c != ',') digits += c;
    const int ranks = std::stoi(digits);
    of_ranks.insert(digits);
    std::vector<std::string> as_json = device_of(deck);
    as_json.push_back("--json");
    const Outcome outcome = plan(deck, ranks, as_json);
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    const Json json = Json::parse(outcome.out);
    const auto bytes = [](const Json& number) { return format_bytes(number.get<std::int64_t>()); };
    EXPECT_EQ(row,
              (std::vector<std::string>{format_count(ranks), bytes(json["memory"]["arena_bytes"]),
                                        bytes(json["host_memory"]["arena_bytes"]),
                                        bytes(json["traffic"]["bytes_inside_nodes"]),
                                        bytes(json["traffic"]["bytes_across_nodes"])}));
    // Some gigabytes are left for what libraries need on a device of 80, or of 24.
    EXPECT_LE(json["memory"]["arena_bytes"], 75'000'000'000);
    if (deck == "llama3-8b-lora") {
      EXPECT_LE(json["memory"]["arena_bytes"], 22'000'000'000);
    }
    EXPECT_LE(json["memory"]["arena_bytes"].get<double>(),
              1.03 * json["memory"]["lower_bound_bytes"].get<double>());
    if (row != rows.front() && !tests::takes_every_case()) continue;
    const Outcome text = plan(deck, ranks, device_of(deck));
    EXPECT_LACKS(text.out, "needs more: an arena");
  }
  // The command in the head is for ranks that the table has.
  const std::string head = read_bytes(deck_path(deck));
  const std::size_t at = head.find(" --ranks ");
  ASSERT_NE(at, std::string::npos);
  const std::string named = head.substr(at + 9, head.find(' ', at + 9) - at - 9);
  EXPECT_EQ(of_ranks.count(named), 1u) << named;
}

/// A deck's head as one text, without the signs of comments.
std::string head_of(const std::string& deck) {
  std::istringstream lines(read_bytes(deck_path(deck)));
  std::string head;
  for (std::string line; std::getline(lines, line) && line.substr(0, 1) == "#";)
    head += line.size() > 2 ? line.substr(2) + " " : "\n";
  return head;
}

/// What stands between two texts, without spaces at its begin; "" where these are missing.
std::string between(const std::string& text, const std::string& begin, const std::string& end) {
  const std::size_t at = text.find(begin);
  if (at == std::string::npos) return "";
  const std::size_t first = text.find_first_not_of(' ', at + begin.size());
  const std::size_t last = text.find(end, first);
  return last == std::string::npos ? "" : text.substr(first, last - first);
}

TEST_P(Decks, HeadsSayWhatIsSimulated) {
  const std::string head = head_of(GetParam());
  if (head.find("Simulated with `") == std::string::npos) GTEST_SKIP() << "no time is told";
  std::vector<std::string> options;
  std::istringstream words(between(head, "Simulated with `", "`"));
  for (std::string word; words >> word;)
    options.push_back(word.substr(0, 9) == "machines/" ? OSTRAKON_SOURCE_DIR "/" + word : word);
  const Outcome outcome = plan(GetParam(), options);
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(between(head, "`: ", " a step, "), between(outcome.out, "\nstep ", ","));
  const std::string of_all = between(outcome.out, "\ntokens/s ", ",");
  const double of_rank = std::stod(between(outcome.out, of_all + ",", " a rank"));
  EXPECT_EQ(between(head, " a step, ", " tokens/s"),
            format_count(static_cast<std::int64_t>(std::llround(of_rank))));
}

INSTANTIATE_TEST_SUITE_P(Shipped, Decks,
                         ::testing::Values("gpt2-124m", "llama3-8b", "llama3-8b-lora", "llama3-70b",
                                           "llama3-405b", "llama3-70b-tensor", "llama3-405b-tensor",
                                           "llama3.1-8b", "qwen2.5-7b", "qwen3-8b", "gemma2-9b",
                                           "olmo2-7b", "gpt-oss-20b", "qwen3-30b-a3b",
                                           "qwen3-next-80b-a3b", "deepseek-v3"),
                         [](const auto& deck) {
                           std::string name = deck.param;
                           for (char& c : name)
                             if (c == '-' || c == '.') c = '_';
                           return name;
                         });

}  // namespace
}  // namespace ostrakon::testing
