// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <ostrakon/scaling/collected.hpp>
#include <ostrakon/scaling/study.hpp>
#include <string>
#include <support/scratch_folder.hpp>

// A study on 1 and 2 ranks, whose runs are made up.

namespace ostrakon::testing {

inline scaling::Study small_study() {
  scaling::Study study;
  study.deck = "decks/small.yaml";
  study.version = "1.2.3";
  study.build = "a compiler";
  study.steps = 12;
  study.warmup = 2;
  study.trace_steps = 11;
  study.repeat = 2;
  for (const int ranks : {1, 2}) {
    scaling::StudySize size;
    size.ranks = ranks;
    size.folder = "ranks-" + std::to_string(ranks);
    size.global_batch_size = 8;
    size.tokens_per_step = 1000;
    size.memory_bytes = 4096;
    size.actions = 3;
    study.sizes.push_back(size);
  }
  return study;
}

/// A run's files: steps of `seconds`, of which each rank computes 0.8, less 0.1 on rank 0 where
/// there are several, and communicates for what is left but for 0.05. Step `slow` takes one second
/// more, in which rank 0 gathers.
struct FakeRun {
  int ranks = 1;
  double seconds = 1.0;
  int slow = 0;
  int steps = 12;
  std::int64_t tokens = 1000;

  double seconds_of(int step) const {
    // Not all the same: neighbours differ, so that they are independent.
    return (step == slow ? 1.0 : 0.0) + seconds * (step % 2 == 0 ? 1.01 : 0.99);
  }
  std::string metrics() const {
    std::string rows;
    for (int step = 1; step <= steps; ++step) {
      rows += nlohmann::ordered_json{{"step", step},
                                     {"loss", 1.0},
                                     {"tokens", step * tokens},
                                     {"step_seconds", seconds_of(step)},
                                     {"mfu", 0.5},
                                     {"peak_bytes", 4096}}
                  .dump() +
              "\n";
      if (step == 3) rows += "{\"step\":3,\"validation_loss\":1.5}\n";
    }
    return rows;
  }
  std::string trace() const {
    nlohmann::ordered_json events = nlohmann::ordered_json::array();
    const auto add = [&](const char* kind, int stream, int rank, int step, double begin,
                         double seconds_long) {
      events.push_back({{"ph", "X"},
                        {"name", kind},
                        {"cat", kind},
                        {"pid", rank},
                        {"tid", stream},
                        {"ts", 1e6 * begin},
                        {"dur", 1e6 * seconds_long},
                        {"args", {{"step", step}}}});
    };
    for (int rank = 0; rank < ranks; ++rank)
      events.push_back({{"ph", "M"},
                        {"name", "process_name"},
                        {"pid", rank},
                        {"tid", 0},
                        {"args", {{"name", "rank " + std::to_string(rank) + " (here)"}}}});
    for (int step = 2; step <= steps; ++step)
      for (int rank = 0; rank < ranks; ++rank) {
        const double begin = 100.0 * step, all = seconds_of(step);
        const double computing = (ranks > 1 && rank == 0 ? 0.7 : 0.8) * seconds;
        add("forward", 0, rank, step, begin, computing);
        add("gather", 1, rank, step, begin + computing, all - computing - 0.05 * seconds);
      }
    return nlohmann::ordered_json{{"displayTimeUnit", "ms"}, {"traceEvents", events}}.dump();
  }
  void write(const std::string& folder) const {
    std::filesystem::create_directories(folder);
    write_bytes(folder + "/metrics.jsonl", metrics());
    write_bytes(folder + "/trace.json", trace());
  }
};

/// study.json and all runs: 1 s on 1 rank, 0.625 s on 2.
inline void write_small_study(const std::string& folder) {
  std::filesystem::create_directories(folder);
  const scaling::Study study = small_study();
  scaling::write_study(folder, study);
  for (const scaling::StudySize& size : study.sizes)
    for (int run = 1; run <= study.repeat; ++run) {
      FakeRun made;
      made.ranks = size.ranks;
      made.seconds = (size.ranks == 1 ? 1.0 : 0.625) * (run == 1 ? 1.002 : 0.998);
      if (size.ranks == 2 && run == 2) made.slow = 7;
      made.write(folder + "/" + scaling::Study::run_folder(size, run));
    }
}

}  // namespace ostrakon::testing
