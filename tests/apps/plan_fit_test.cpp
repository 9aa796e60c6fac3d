// SPDX-License-Identifier: Apache-2.0

// ostrakon-plan --fit: the settings that it lists are those that the plans of all settings show.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "plan_fixture.hpp"
#include "support/trials.hpp"

namespace ostrakon::testing {
namespace {

using Json = nlohmann::json;

/// What --fit says of some settings, by way of planning them alone at the same rates.
struct Figures {
  std::int64_t arena_bytes = 0, host_arena_bytes = 0;
  std::int64_t bytes_inside_nodes = 0, bytes_across_nodes = 0;
  std::int64_t bytes_copied = 0, bytes_on_host = 0;
  double flops = 0.0, seconds = 0.0, exposed = 0.0, tokens_per_second = 0.0, mfu = 0.0;
  bool bits_of_one_rank = false;
};

/// Settings of which --fit lists one: the most wanted first.
using Family = std::vector<Figures>;

class Fit : public Plan {
 protected:
  /// With short plans: thousands are made.
  Fit() { write_bytes(path("deck.yaml"), short_deck_); }

  static std::string with_few_leaves(std::string text) {
    const std::string many = "global_batch_size: 64";
    return text.replace(text.find(many), many.size(), "global_batch_size: 16");
  }

  const std::string short_deck_ = with_few_leaves(deck);
  /// At rates at which a small deck computes about as long as it sends.
  const std::vector<std::string> rates_ = {"--gflops", "0.05", "--gigabytes-per-second=0.001"};

  Figures plan_alone(const std::vector<std::string>& settings,
                     const std::vector<std::string>& place) const {
    std::vector<std::string> arguments = {"deck.yaml", "--json"};
    arguments.insert(arguments.end(), place.begin(), place.end());
    arguments.insert(arguments.end(), rates_.begin(), rates_.end());
    for (const std::string& setting : settings) {
      arguments.push_back("--set");
      arguments.push_back(setting);
    }
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    const Json json = Json::parse(outcome.out);
    Figures figures;
    figures.arena_bytes = json["memory"]["arena_bytes"];
    figures.host_arena_bytes = json["host_memory"]["arena_bytes"];
    figures.bytes_copied = json["copies"]["bytes_to_device"].get<std::int64_t>() +
                           json["copies"]["bytes_to_host"].get<std::int64_t>();
    figures.bytes_on_host = json["bytes_on_host"];
    figures.bytes_inside_nodes = json["traffic"]["bytes_inside_nodes"];
    figures.bytes_across_nodes = json["traffic"]["bytes_across_nodes"];
    figures.flops = json["flops"];
    figures.bits_of_one_rank = json["has_the_bits_of_one_rank"];
    const Json& estimate = json.at("estimate");
    figures.seconds = estimate["step_seconds"];
    figures.exposed = estimate["exposed_communication_seconds"];
    figures.tokens_per_second = estimate["tokens_per_second"];
    figures.mfu = estimate["mfu"];
    return figures;
  }

  Json find_fits(const std::string& bytes, std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"deck.yaml", "--fit", bytes, "--json"});
    arguments.insert(arguments.end(), rates_.begin(), rates_.end());
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return Json::parse(outcome.out)["settings"];
  }

  void expect_true(const Json& row, const std::vector<std::string>& place) const {
    const Figures figures = plan_alone(row["set"], place);
    EXPECT_EQ(row["arena_bytes"], figures.arena_bytes) << row;
    EXPECT_EQ(row["host_arena_bytes"], figures.host_arena_bytes) << row;
    EXPECT_EQ(row["bytes_copied"], figures.bytes_copied) << row;
    EXPECT_EQ(row["bytes_on_host"], figures.bytes_on_host) << row;
    EXPECT_EQ(row["bytes_inside_nodes"], figures.bytes_inside_nodes) << row;
    EXPECT_EQ(row["bytes_across_nodes"], figures.bytes_across_nodes) << row;
    EXPECT_EQ(row["flops"], figures.flops) << row;
    EXPECT_EQ(row["seconds"], figures.seconds) << row;
    EXPECT_EQ(row["exposed_communication_seconds"], figures.exposed) << row;
    EXPECT_EQ(row["tokens_per_second"], figures.tokens_per_second) << row;
    EXPECT_EQ(row["mfu"], figures.mfu) << row;
    EXPECT_EQ(row["bits_of_one_rank"], figures.bits_of_one_rank) << row;
  }

  /// In the order in which they are wanted.
  Family plan_overlaps(const std::vector<std::string>& settings,
                       const std::vector<std::string>& place) const {
    Family family;
    for (const std::vector<std::string>& overlap : {std::vector<std::string>{"1", "1", "1"},
                                                    {"2", "2", "2"},
                                                    {"1", "1", "0"},
                                                    {"0", "0", "0"}}) {
      std::vector<std::string> all = settings;
      all.push_back("parallel.forward_prefetch=" + overlap[0]);
      all.push_back("parallel.backward_prefetch=" + overlap[1]);
      all.push_back("parallel.in_flight_reductions=" + overlap[2]);
      family.push_back(plan_alone(all, place));
    }
    return family;
  }

  /// The list has for each family that fits something that takes hardly more time or memory, or is
  /// full of what is faster; and what is slower in it needs less memory.
  void expect_chosen(const std::vector<Family>& all, std::int64_t bytes, std::int64_t host_bytes,
                     std::vector<std::string> place) const {
    place.insert(place.end(), {"--host-bytes", std::to_string(host_bytes)});
    const Json rows = find_fits(std::to_string(bytes), place);
    ASSERT_FALSE(rows.empty());
    ASSERT_LE(rows.size(), 10u);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      EXPECT_LE(rows[i]["arena_bytes"], bytes);
      EXPECT_LE(rows[i]["host_arena_bytes"], host_bytes);
      for (std::size_t j = 0; j < i; ++j) {
        EXPECT_LE(rows[j]["seconds"].get<double>(), 1.001 * rows[i]["seconds"].get<double>());
        EXPECT_TRUE(rows[i]["arena_bytes"] < rows[j]["arena_bytes"] ||
                    rows[i]["host_arena_bytes"] < rows[j]["host_arena_bytes"] ||
                    rows[i]["bits_of_one_rank"] > rows[j]["bits_of_one_rank"])
            << rows;
      }
    }
    const double last = rows.back()["seconds"];
    for (const Family& family : all) {
      double fastest = std::numeric_limits<double>::infinity();
      for (const Figures& figures : family)
        if (figures.arena_bytes <= bytes && figures.host_arena_bytes <= host_bytes)
          fastest = std::min(fastest, figures.seconds);
      if (fastest > 1e9 || (rows.size() == 10 && fastest >= 0.99 * last)) continue;
      const auto is_as_good = [&](const Json& row, const Figures& figures) {
        const double arena = 1.02 * static_cast<double>(figures.arena_bytes);
        const double host = arena - static_cast<double>(figures.arena_bytes) +
                            1.02 * static_cast<double>(figures.host_arena_bytes);
        return figures.arena_bytes <= bytes && figures.host_arena_bytes <= host_bytes &&
               0.98 * figures.seconds <= fastest && row["arena_bytes"] <= arena &&
               row["host_arena_bytes"] <= host;
      };
      EXPECT_TRUE(std::any_of(rows.begin(), rows.end(),
                              [&](const Json& row) {
                                return 0.98 * row["seconds"].get<double>() <= fastest &&
                                       std::any_of(family.begin(), family.end(),
                                                   [&](const Figures& figures) {
                                                     return is_as_good(row, figures);
                                                   });
                              }))
          << fastest << "\n"
          << rows;
    }
  }
};

std::vector<std::int64_t> sorted_arenas(const std::vector<Family>& all) {
  std::vector<std::int64_t> arenas;
  for (const Family& family : all)
    for (const Figures& figures : family) arenas.push_back(figures.arena_bytes);
  std::sort(arenas.begin(), arenas.end());
  return arenas;
}

TEST_F(Fit, WhatIsHiddenByPrefetchComesBeforeWhatIsNot) {
  const std::vector<std::string> place = {"--ranks", "8", "--ranks-per-node", "4"};
  const Json rows = find_fits("1GiB", place);
  const Figures without = plan_alone({"parallel.forward_prefetch=0", "parallel.backward_prefetch=0",
                                      "parallel.in_flight_reductions=0"},
                                     place);
  const Figures with = plan_alone({}, place);
  EXPECT_LT(with.seconds, 0.95 * without.seconds);
  EXPECT_LT(rows[0]["seconds"], without.seconds);
  EXPECT_EQ(rows[0]["set"].dump().find("prefetch=0"), std::string::npos) << rows;
}

TEST_F(Fit, EveryRowIsTrue) {
  const std::vector<std::string> place = {"--ranks", "8", "--ranks-per-node", "4"};
  const auto rows_for = [&](const char* bytes, std::vector<std::string> more) {
    std::vector<std::string> arguments = place;
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Json rows = find_fits(bytes, arguments);
    double before = 0.0;
    for (const Json& row : rows) {
      expect_true(row, place);
      EXPECT_GE(1.001 * row["seconds"].get<double>(), before);
      before = row["seconds"];
    }
    return rows;
  };
  EXPECT_GT(rows_for("1GiB", {}).size(), 3u);
  const Json any = rows_for("1GiB", {"--any-precision"});
  EXPECT_NE(any[0]["set"].dump().find("precision.gather=bf16"), std::string::npos) << any;
  // Little enough that rows differ in more than the first, with less overlap and computing twice.
  const Json tight = rows_for("300KiB", {"--any-precision", "--host-bytes", "64KiB"});
  EXPECT_NE(tight.dump().find("activation_checkpointing"), std::string::npos) << tight;

  // A deck that as it is can not be divided over that many ranks, with settings of its own kind.
  write_bytes(
      path("deck.yaml"),
      short_deck_ + std::string("  precision: {activations: fp32}\n"
                                "  memory: {activation_checkpointing: selective mlp}\n"
                                "  parallel: {forward_prefetch: 2, units: 'block.*: "
                                "reshard_after_forward never', shard_optimizer_over: world, "
                                "shard_group: 2, reshard_after_forward: 2}\n"));
  EXPECT_EQ(run({"deck.yaml", "--ranks", "8", "--set", "training.global_batch_size=64", "--set",
                 "training.micro_batch_size=64"})
                .status,
            1);
  EXPECT_GT(rows_for("1GiB", {}).size(), 3u);
}

TEST_F(Fit, MissesNothing) {
  const std::vector<std::string> place = {"--ranks", "4",     "--ranks-per-node",
                                          "2",       "--set", "training.global_batch_size=8"};
  // What has an effect where the host has no memory for more than batches, each with and without
  // overlap; a sample of it on groups of a node with recomputation only.
  std::vector<Family> all;
  for (const std::string sharding : {"none", "optimizer", "gradients", "full"})
    for (const char* group : {"world", "node"})
      for (const char* checkpointing : {"none", "full"})
        for (const char* micro_batch : {"1", "2"})
          for (const std::string accumulation : {"auto", "reduce_last"})
            for (const std::string reshard : {"default", "never", "end_of_step", "2"}) {
              const bool reduces_early = sharding == "gradients" || sharding == "full";
              if (accumulation != "auto" && (!reduces_early || micro_batch == std::string("2")))
                continue;
              if (reshard != "default" && sharding != "full") continue;
              if (reshard == "2" && group == std::string("node")) continue;
              if (!tests::takes_every_case() && group == std::string("node") &&
                  (checkpointing == std::string("none") || micro_batch == std::string("2")))
                continue;
              all.push_back(plan_overlaps(
                  {"parallel.sharding=" + sharding, std::string("parallel.shard_group=") + group,
                   std::string("memory.activation_checkpointing=") + checkpointing,
                   std::string("training.micro_batch_size=") + micro_batch,
                   "parallel.accumulation=" + accumulation,
                   "parallel.reshard_after_forward=" + reshard},
                  place));
            }
  const std::vector<std::int64_t> arenas = sorted_arenas(all);
  std::int64_t host_bytes = 0;
  for (const Family& family : all)
    for (const Figures& figures : family)
      host_bytes = std::max(host_bytes, figures.host_arena_bytes);
  for (std::size_t at : {std::size_t{2}, arenas.size() / 8, arenas.size() / 2, arenas.size() - 1})
    expect_chosen(all, arenas[at], host_bytes, place);
  const Outcome none = run({"deck.yaml", "--ranks", "4", "--ranks-per-node", "2", "--set",
                            "training.global_batch_size=8", "--fit", std::to_string(arenas[0] - 1),
                            "--host-bytes", std::to_string(host_bytes)});
  EXPECT_EQ(none.status, 1);
  EXPECT_EQ(none.out, "");
  EXPECT_EQ(none.err.rfind("ostrakon-plan: error: nothing fits ", 0), 0u) << none.err;
  EXPECT_EQ(none.err.find('\n'), none.err.size() - 1) << none.err;
  EXPECT_NE(
      none.err.find("; the smallest arena in device memory, of settings within --host-bytes,"),
      std::string::npos)
      << none.err;
  EXPECT_NE(none.err.find("--set 'memory.activation_checkpointing="), std::string::npos)
      << none.err;
}

TEST_F(Fit, MovesToTheHostWhatDoesNotFit) {
  const std::vector<std::string> place = {"--set", "training.global_batch_size=2"};
  std::vector<Family> all;
  for (const char* checkpointing : {"none", "full"})
    for (const char* micro_batch : {"1", "2"})
      for (const char* reshard : {"default", "never", "end_of_step"}) {
        if (micro_batch == std::string("2") && !tests::takes_every_case()) continue;
        all.emplace_back();
        for (const char* offload : {"none", "optimizer", "parameters", "all"})
          for (const char* activations : {"device", "host"})
            for (const Figures& figures :
                 plan_overlaps({std::string("memory.activation_checkpointing=") + checkpointing,
                                std::string("training.micro_batch_size=") + micro_batch,
                                std::string("parallel.reshard_after_forward=") + reshard,
                                std::string("memory.offload=") + offload,
                                std::string("memory.activations=") + activations},
                               place))
              all.back().push_back(figures);
      }
  const std::vector<std::int64_t> arenas = sorted_arenas(all);
  for (std::size_t at : {std::size_t{0}, std::size_t{5}, arenas.size() / 4, arenas.size() / 2}) {
    expect_chosen(all, arenas[at], std::int64_t{1} << 40, place);
  }
  expect_refused({"deck.yaml", "--fit", "1GiB", "--host-bytes", "1"},
                 "nothing fits --host-bytes: no settings need as little of the host's memory as 1 "
                 "B for a rank (1 rank, 1 on "
                 "each node)");
}

// The figures of a row are those of all stages: what the table of stages shows.
TEST_F(Fit, EveryRowOfAPipelineIsTrue) {
  const std::vector<std::string> place = {"--ranks",
                                          "8",
                                          "--ranks-per-node",
                                          "4",
                                          "--set",
                                          "parallel.pipeline=2",
                                          "--set",
                                          "training.global_batch_size=16"};
  const auto expect_rows = [&](std::vector<std::string> more) {
    std::vector<std::string> all = place;
    all.insert(all.end(), more.begin(), more.end());
    const Json rows = find_fits("1GiB", all);
    EXPECT_GT(rows.size(), 1u);
    for (const Json& row : rows) {
      std::vector<std::string> arguments = {"deck.yaml", "--json"};
      arguments.insert(arguments.end(), all.begin(), all.end());
      arguments.insert(arguments.end(), rates_.begin(), rates_.end());
      for (const std::string setting : row["set"]) {
        arguments.push_back("--set");
        arguments.push_back(setting);
      }
      const Outcome outcome = run(arguments);
      ASSERT_EQ(outcome.status, 0) << outcome.err;
      const Json json = Json::parse(outcome.out);
      ASSERT_EQ(json["stages"].size(), 2u);
      std::int64_t arena_bytes = 0, host_arena_bytes = 0;
      for (const Json& stage : json["stages"]) {
        arena_bytes = std::max<std::int64_t>(arena_bytes, stage["arena_bytes"]);
        host_arena_bytes = std::max<std::int64_t>(host_arena_bytes, stage["host_arena_bytes"]);
      }
      EXPECT_EQ(row["arena_bytes"], arena_bytes) << row;
      EXPECT_EQ(row["host_arena_bytes"], host_arena_bytes) << row;
      EXPECT_EQ(row["seconds"], json["estimate"]["step_seconds"]) << row;
      EXPECT_EQ(row["tokens_per_second"], json["estimate"]["tokens_per_second"]) << row;
      EXPECT_EQ(row["mfu"], json["estimate"]["mfu"]) << row;
      EXPECT_EQ(row["bits_of_one_rank"], json["has_the_bits_of_one_rank"]) << row;
    }
  };
  expect_rows({});
  expect_rows({"--set", "parallel.schedule=zero_bubble"});
}

TEST_F(Fit, RanksSettingsOfExpertsOverRanks) {
  const std::vector<std::string> place = {"--ranks",
                                          "4",
                                          "--ranks-per-node",
                                          "2",
                                          "--set",
                                          "model.experts=4",
                                          "--set",
                                          "model.experts_per_token=2",
                                          "--set",
                                          "parallel.expert=2",
                                          "--set",
                                          "training.global_batch_size=8"};
  const Json rows = find_fits("1GiB", place);
  EXPECT_GT(rows.size(), 1u);
  for (const Json& row : rows) expect_true(row, place);
  // Some settings are impossible; that is not why nothing fits.
  std::vector<std::string> arguments = {"deck.yaml", "--fit", "1KiB"};
  arguments.insert(arguments.end(), place.begin(), place.end());
  const Outcome none = run(arguments);
  EXPECT_EQ(none.status, 1);
  EXPECT_EQ(none.err.rfind("ostrakon-plan: error: nothing fits 1.00 KiB", 0), 0u) << none.err;
}

// With a grain, what is fastest loses the bits that the deck has: no list may hide that.
TEST_F(Fit, EveryRowSaysWhetherItHasTheBitsOfOneRank) {
  const std::vector<std::string> place = {"--ranks", "8",     "--ranks-per-node",
                                          "4",       "--set", "training.global_batch_size=32"};
  const auto with_grain = [&](const char* grain) {
    std::vector<std::string> arguments = place;
    arguments.insert(arguments.end(), {"--set", std::string("training.sum_grain=") + grain});
    return arguments;
  };
  const auto count = [](const Json& rows, bool bits) {
    return std::count_if(rows.begin(), rows.end(),
                         [&](const Json& row) { return row.at("bits_of_one_rank") == bits; });
  };
  const Json rows = find_fits("1GiB", with_grain("2"));
  EXPECT_TRUE(plan_alone({}, with_grain("2")).bits_of_one_rank);
  EXPECT_FALSE(rows[0]["bits_of_one_rank"]) << rows;
  EXPECT_GE(count(rows, false), 1) << rows;
  EXPECT_GE(count(rows, true), 1) << rows;
  for (const Json& row : rows) expect_true(row, with_grain("2"));
  // Without regard to bits, the first that has them would not be listed: it is larger.
  const auto keeps = std::find_if(rows.begin(), rows.end(),
                                  [](const Json& row) { return row["bits_of_one_rank"] == true; });
  EXPECT_GE((*keeps)["arena_bytes"], rows[0]["arena_bytes"]) << rows;
  EXPECT_EQ(count(find_fits("1GiB", place), false), 0);

  std::vector<std::string> arguments = with_grain("2");
  arguments.insert(arguments.begin(), {"deck.yaml", "--fit", "1GiB"});
  arguments.insert(arguments.end(), rates_.begin(), rates_.end());
  const std::string table = run(arguments).out;
  EXPECT_NE(table.find("across nodes       copied    bitwise equal\n"), std::string::npos) << table;
  EXPECT_NE(
      table.find("\nbitwise equal: whether sums over micro-batches are bitwise equal to 1 rank"),
      std::string::npos)
      << table;
  // In the order of the rows.
  std::vector<bool> said, expected;
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line) && !line.empty();) {
    const std::string word = line.substr(line.find_last_of(' ') + 1);
    if (word == "yes" || word == "no") said.push_back(word == "yes");
  }
  for (const Json& row : rows) expected.push_back(row["bits_of_one_rank"]);
  EXPECT_EQ(said, expected) << table;

  // Rounded, gradients have them in no settings; what does not fit says so as well.
  arguments = with_grain("0");
  arguments.insert(arguments.begin(), {"deck.yaml", "--fit", "1", "--set", "precision.reduce=bf16",
                                       "--set", "training.global_batch_size=8"});
  expect_refused(arguments, ", not bitwise equal to 1 rank: ");
}

TEST_F(Fit, ShowsATableWithOptionsToCopy) {
  const Outcome outcome = run({"deck.yaml", "--ranks", "8", "--ranks-per-node", "4", "--fit",
                               "400KiB", "--gflops", "10", "--gigabytes-per-second=0.5"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  for (const char* words :
       {"settings whose arena fits 400.00 KiB of a rank's device memory (8 ranks, 4 on each",
        "\n    --set parallel.",
        "at 10 GFLOP/s, 5 GB/s inside a node, 0.5 GB/s across nodes, 25 GB/s between host and "
        "device, "
        "12 GB/s where the host updates",
        " tokens/s      MFU "})
    EXPECT_NE(outcome.out.find(words), std::string::npos) << words << outcome.out;
  // Where computing is slow nothing is computed twice unless it must be, and the other way round.
  const auto flops_of_best = [&](const char* gflops, const char* rate) {
    const Outcome found =
        run({"deck.yaml", "--json", "--fit", "1MiB", "--ranks", "8", "--ranks-per-node", "4",
             "--gflops", gflops, "--gigabytes-per-second", rate});
    return Json::parse(found.out)["settings"][0]["flops"].get<double>();
  };
  EXPECT_LE(flops_of_best("0.001", "1000"), flops_of_best("1e9", "0.001"));

  expect_refused({"deck.yaml", "--fit", "0"}, "--fit 0: expected bytes, such as 80GiB");
  expect_refused({"deck.yaml", "--fit", "80parsec"}, "expected bytes");
  expect_refused({"deck.yaml", "--fit", "unlimited"}, "expected bytes");
  expect_refused({"deck.yaml", "--fit", "1GiB", "--svg", "a.svg"}, "--svg draws one plan");
  expect_refused({"deck.yaml", "--fit", "1GiB", "--gflops", "0"}, "expected a number above 0");
  expect_refused({"deck.yaml", "--any-precision"}, "goes with --fit only");
  expect_refused({"deck.yaml", "--host-bytes", "1GiB"}, "--host-bytes goes with --fit only");
  expect_refused({"deck.yaml", "--fit", "1GiB", "--host-bytes", "0"}, "--host-bytes 0: expected");
  expect_refused({"deck.yaml", "--copy-gigabytes-per-second", "0"}, "expected a number above 0");
  expect_refused({"deck.yaml", "--fit", "1GiB", "--host-gigabytes-per-second=-1"},
                 "expected a number above 0");
  expect_refused(
      {"deck.yaml", "--ranks", "7", "--fit", "1GiB", "--set", "training.global_batch_size=64"},
      "64 leaves");
}

// Seconds and MFU of each row are those of --time with its settings.
TEST_F(Fit, SortsByWhatIsSimulatedOnAMachine) {
  const std::string machine = OSTRAKON_SOURCE_DIR "/machines/h100-infiniband.yaml";
  const std::vector<std::string> place = {"--ranks", "16", "--time", machine};
  std::vector<std::string> arguments = {"deck.yaml", "--fit", "1GiB", "--json"};
  arguments.insert(arguments.end(), place.begin(), place.end());
  const Outcome outcome = run(arguments);
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const Json json = Json::parse(outcome.out);
  EXPECT_EQ(json["machine"], "H100 SXM 80 GB, 8 x 400 Gb/s InfiniBand a node");
  EXPECT_EQ(json["ranks_per_node"], 8);
  EXPECT_EQ(json.count("flops_per_second"), 0u);
  ASSERT_FALSE(json["settings"].empty());
  double last = 0.0;
  for (const Json& row : json["settings"]) {
    std::vector<std::string> alone = {"deck.yaml", "--json"};
    alone.insert(alone.end(), place.begin(), place.end());
    for (const Json& setting : row["set"])
      alone.insert(alone.end(), {"--set", setting.get<std::string>()});
    const Json time = Json::parse(run(alone).out);
    EXPECT_DOUBLE_EQ(row["seconds"].get<double>(), time["step_seconds"].get<double>()) << row;
    EXPECT_NEAR(row["mfu"].get<double>(), time["mfu"].get<double>(), 1e-9) << row;
    EXPECT_GE(row["seconds"].get<double>(), last);
    last = row["seconds"];
  }
  const std::vector<std::string> as_text = {"deck.yaml", "--fit",  "1GiB", "--ranks",
                                            "16",        "--time", machine};
  EXPECT_NE(run(as_text).out.find("seconds: of a step, simulated on H100"), std::string::npos);
  expect_refused({"deck.yaml", "--fit", "1GiB", "--time", machine, "--sweep", "ranks=2,4"},
                 "--fit and --sweep don't go together");
  expect_refused({"deck.yaml", "--fit", "1GiB", "--time", machine, "--choose"},
                 "--choose and --fit don't go together");
  expect_refused({"deck.yaml", "--fit", "1GiB", "--time", machine, "--html", "a.html"},
                 "--html draws one plan; --fit shows many");
}

}  // namespace
}  // namespace ostrakon::testing
