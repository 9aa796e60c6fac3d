// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/files.hpp>
#include <ostrakon/checkpoint/reader.hpp>
#include <ostrakon/saving/saver.hpp>

#include "bench.hpp"

namespace ostrakon::bench {
namespace {

namespace fs = std::filesystem;

/// Returns the seconds that a shell command takes. Throws Error if it fails.
double run_shell(const std::string& command) {
  const Stopwatch timer;
  const int status = std::system(command.c_str());
  require(status == 0, "`", command, "` failed with status ", status);
  return timer.seconds();
}

/// A run that is saved and read repeatedly, compared with the system's own programs on the same
/// number of bytes on the same file system.
class Checkpoints {
 public:
  Checkpoints(comm::Communicator& parent, const config::Settings& settings, double budget)
      : settings_(settings),
        budget_(budget),
        training_(parent.mpi(), settings_),
        world_(training_.world),
        trainer_(training_.trainer),
        saver_(settings_, training_.mesh, trainer_) {
    training_.prepare();
    saver_.prepare();
    make_folder();
  }
  ~Checkpoints() {
    std::error_code ignored;
    if (world_.rank() == 0) fs::remove_all(settings_.output.directory, ignored);
  }

  void measure(Table& table) {
    const auto bytes = static_cast<double>(saver_.bytes());
    const auto row = [&](const char* what, double seconds, double peer) {
      table.row({what, saver_.bytes(), seconds, bytes / seconds / 1e9, peer / seconds});
    };
    // The programs alternate, as a disk's rate varies over time.
    std::vector<double> dd, write, cat, read;
    for (int turn = 0; turn < 3; ++turn) {
      // dd writes a new file, as saves do.
      dd.push_back(shell(text("rm -f '", plain(), "' && dd if=/dev/zero of='", plain(),
                              "' bs=4M count=", saver_.bytes(),
                              " iflag=count_bytes conv=fsync 2>/dev/null")));
      write.push_back(save());
      // cat reads the checkpoint's own files, as disks may compress dd's zeros.
      drop_checkpoint();
      cat.push_back(shell(text("cat '", path_, "'/*.h5 >/dev/null")));
      drop_checkpoint();
      read.push_back(restore());
    }
    row("dd conv=fsync", fastest(dd), fastest(dd));
    row("save", fastest(write), fastest(dd));
    row("cat", fastest(cat), fastest(cat));
    row("restore", fastest(read), fastest(cat));
    std::vector<double> copy, stage;
    for (int turn = 0; turn < 5; ++turn) {
      copy.push_back(copy_as_much());
      stage.push_back(agreed([&] { trainer_.stage(); }));
    }
    row("memory copy", fastest(copy), fastest(copy));
    row("stage", fastest(stage), fastest(copy));
    measure_asynchronous(fastest(copy), row);
  }

 private:
  /// Measures steps without a save, and steps during one, alternating.
  template <class Row>
  void measure_asynchronous(double copy, const Row& row) {
    std::vector<double> plain_steps, steps_during_save, stalls;
    double total = 0.0;
    step();
    while (total < budget_ || (steps_during_save.size() < 6 && total < 20.0 * budget_)) {
      plain_steps.push_back(step());
      total += plain_steps.back();
      stalls.push_back(agreed([&] { saver_.begin(trainer_.progress(), "synthetic", true); }));
      // Counts only steps during which every rank is writing from begin to end.
      while (saver_.is_saving()) {
        const bool before = all_are_busy();
        const double seconds = step();
        total += seconds;
        if (before && all_are_busy()) steps_during_save.push_back(seconds);
        if (!any_is_busy()) saver_.advance();
      }
    }
    row("stall of a step", fastest(stalls), copy);
    const double plain_median = summarize(plain_steps).median;
    row("step", plain_median, plain_median);
    if (!steps_during_save.empty())
      row("step during a save", summarize(steps_during_save).median, plain_median);
  }

  double step() {
    return agreed([&] { trainer_.step(*training_.dataset, ++steps_); });
  }
  bool all_are_busy() {
    double busy = saver_.is_busy() ? 1.0 : 0.0;
    world_.all_reduce_min(&busy, 1);
    return busy > 0.0;
  }
  bool any_is_busy() {
    double busy = saver_.is_busy() ? 1.0 : 0.0;
    world_.all_reduce_max(&busy, 1);
    return busy > 0.0;
  }
  double save() {
    return agreed([&] {
      saver_.begin(trainer_.progress(), "synthetic", false);
      path_ = saver_.finish()->path;
    });
  }
  double restore() {
    path_ = world_.broadcast(path_, 0);
    return agreed([&] {
      checkpoint::CheckpointReader reader(path_);
      trainer_.restore(reader);
    });
  }
  double copy_as_much() {
    const auto mine = static_cast<std::size_t>(saver_.bytes() / world_.size());
    from_.assign(mine, 1);
    to_.assign(mine, 2);
    return agreed([&] { std::memcpy(to_.data(), from_.data(), mine); });
  }

  template <class Work>
  double agreed(const Work& work) {
    return slowest(world_, work);
  }

  double shell(const std::string& command) {
    double seconds = 0.0;
    world_.run_on_root([&] { seconds = run_shell(command); });
    world_.broadcast(&seconds, sizeof seconds, 0);
    return seconds;
  }

  static double fastest(const std::vector<double>& seconds) { return summarize(seconds).fastest; }

  std::string plain() const { return settings_.output.directory + "/plain"; }
  static void drop(const std::string& path) {
    PlainFile file(path, PlainFile::Mode::read);
    file.drop_cache(0, file.size());
  }
  void drop_checkpoint() {
    if (world_.rank() == 0)
      for (const fs::directory_entry& entry : fs::directory_iterator(path_))
        drop(entry.path().string());
  }

  /// Creates the folder in the deck's output folder, so that it is on the intended file system.
  void make_folder() {
    world_.run_on_root([&] { fs::create_directories(settings_.output.directory); });
  }

  config::Settings settings_;
  const double budget_;
  Training training_;
  comm::Communicator& world_;
  train::Trainer& trainer_;
  train::Saver saver_;
  std::int64_t steps_ = 0;
  std::string path_;
  std::vector<char> from_, to_;
};

}  // namespace

void run_checkpoint(comm::Communicator& world, config::Settings settings, const Options& options) {
  settings.output.directory =
      (fs::absolute(settings.output.directory) / "ostrakon-bench-checkpoint").string();
  settings.checkpoint.every = settings.checkpoint.keep = 1;
  settings.checkpoint.asynchronous = true;
  Table table("checkpoint", world, options,
              {{"what", "what", Format::text, 20},
               {"bytes", "bytes", Format::bytes, 10},
               {"time", "seconds", Format::seconds, 10},
               {"GB/s", "gigabytes_per_second", Format::ratio, 7},
               {"speed of peer", "speed_of_peer", Format::percent, 13}});
  Checkpoints(world, settings, options.seconds_or(10.0)).measure(table);
}

}  // namespace ostrakon::bench
