// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <ostrakon/config/settings.hpp>
#include <ostrakon/mesh/mesh.hpp>
#include <ostrakon/run/console.hpp>
#include <ostrakon/trainer/trainer.hpp>
#include <ostrakon/watch/progress.hpp>
#include <ostrakon/watch/watchdog.hpp>

namespace ostrakon::train {

/// The watchdog of a run, as runtime.watchdog says, and its fault on purpose, runtime.inject.
class Watching {
 public:
  /// All arguments must outlive it. Where ranks can't be connected, says so, or with a limit in
  /// seconds throws CollectiveError; throws it too where runtime.inject names no rank, step or
  /// action of this run. Collective.
  Watching(const config::Settings& settings, mesh::Mesh& mesh, const Trainer& trainer,
           Console& console);

 private:
  void arm(const config::Settings& settings, mesh::Mesh& mesh, const Trainer& trainer);

  std::unique_ptr<watch::Progress> progress_;
  std::unique_ptr<watch::Watchdog> watchdog_;  // ends before the progress that it reads
};

}  // namespace ostrakon::train
