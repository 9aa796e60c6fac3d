// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/run/run_folder.hpp>

#include <filesystem>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/file_type.hpp>
#include <ostrakon/base/files/files.hpp>
#include <ostrakon/base/files/free_name.hpp>
#include <ostrakon/base/files/input.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/new_file.hpp>
#include <ostrakon/run/ranks.hpp>
#include <utility>

namespace ostrakon::train {

namespace fs = std::filesystem;

RunFolder::RunFolder(std::string directory, comm::Communicator& world, Console& console,
                     bool break_lock, FolderLockOptions times)
    : directory_(std::move(directory)),
      world_(world),
      console_(console),
      lock_options_(std::move(times)) {
  lock_options_.take_from_holder = break_lock;
  const std::string alone = why_alone();
  lock_options_.advice =
      alone.empty() ? "; end it, choose another output.directory, or take it with --break-lock"
                    : "; " + alone;
  lock_options_.tell = [this](const std::string& words) { console_.say("  (" + words + ")\n"); };
}

std::string RunFolder::file(const std::string& name) const {
  return (fs::path(directory_) / name).string();
}

/// Takes the lock, on rank 0.
void RunFolder::lock() {
  if (!lock_) lock_ = std::make_unique<FolderLock>(directory_, lock_options_);
}

void RunFolder::lock_if_there() {
  world_.run_on_root([&] {
    if (is_folder(directory_)) lock();
  });
}

bool RunFolder::make() {
  world_.run_on_root([&] {
    std::error_code error;
    fs::create_directories(directory_, error);
    require(!error, directory_, " can't be made: ", error.message());
    for (const char* name : {"deck.yaml", "plan.json", "metrics.jsonl", "trace.json"})
      require_no_pipe(file(name));
    for (const char* name : {"weights.h5", "weights-ema.h5"})
      require(!is_folder(file(name)), file(name),
              " is a folder; weights go to a file of that name");
  });
  const bool was_locked = lock_ != nullptr;
  world_.run_on_root([&] { lock(); });
  return console_.is_root() && !was_locked;
}

void RunFolder::check() const {
  if (lock_) lock_->require_held();
}

void RunFolder::check_before_save() const {
  check();
  if (metrics_) metrics_->flush();
}

void RunFolder::require_held() const {
  world_.run_collectively([&] { check(); });
}

bool RunFolder::is_held() const {
  try {
    require_held();
  } catch (const CollectiveError&) {
    return false;
  }
  return true;
}

void RunFolder::open_metrics(std::int64_t last, bool is_own) {
  const std::string metrics = file("metrics.jsonl");
  const std::string earlier = is_own ? "" : rename_previous_metrics(metrics);
  if (!earlier.empty())
    console_.say(text("metrics of an earlier run are in ", earlier, " now\n\n"));
  metrics_ = std::make_unique<MetricsFile>(metrics, last);
}

void RunFolder::write_file(const std::string& name, const std::string& content) const {
  replace_file(file(name), content);
}

void RunFolder::keep_earlier_weights() const {
  for (const std::string name : {"weights", "weights-ema"}) {
    const std::string weights = file(name + ".h5");
    if (!is_there(weights)) continue;
    const std::string kept = free_name(file(name + ".previous"), ".h5");
    rename_file(weights, kept);
    console_.say(text("weights of an earlier run are in ", kept, " now\n\n"));
  }
}

template <class Metrics>
void RunFolder::write_row(const Metrics& metrics) {
  world_.run_on_root([&] {
    if (lock_->is_lost()) lock_->require_held();
    require(metrics_ != nullptr, "'", file("metrics.jsonl"),
            "' is not open; expected rows between open_metrics and close_metrics");
    tell(metrics_->write(metrics));
  });
}

void RunFolder::tell(const MetricsFile::Waiting& waiting) {
  const bool wait = waiting.rows > 0;
  if (wait == std::exchange(rows_wait_, wait)) return;
  console_.say(wait ? text("  ", waiting.why, "; rows wait in memory until it can be written\n")
                    : text("  '", file("metrics.jsonl"), "' has all rows again\n"));
}

void RunFolder::close_metrics() {
  if (!metrics_) return;
  metrics_->close();
  metrics_.reset();
  tell({});
}

void RunFolder::write(const StepMetrics& metrics) { write_row(metrics); }

void RunFolder::write(const ValidationMetrics& metrics) { write_row(metrics); }
void RunFolder::write(const EvaluationMetrics& metrics) { write_row(metrics); }

}  // namespace ostrakon::train
