// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace ostrakon::train {

/// What users and batch systems ask a run for while it goes on: SIGTERM and SIGUSR2, to save a
/// checkpoint and stop; SIGUSR1, or a file that somebody makes, to save one and go on. Signals are
/// noted in one process; its ranks have to agree on what follows. One object at a time; its end
/// gives signals back the meaning that they had before.
class Triggers {
 public:
  /// `file`: the path to watch on this rank; empty: none.
  explicit Triggers(std::string file);
  Triggers(const Triggers&) = delete;
  Triggers& operator=(const Triggers&) = delete;
  ~Triggers();

  struct Requests {
    bool save = false;
    bool stop = false;
  };
  /// What was asked since the last call. The file is removed.
  Requests take();

 private:
  std::string file_;
  bool ignores_file_ = false;  // it could not be removed, and was seen
};

/// Seconds since this process was started.
double seconds_since_start();

}  // namespace ostrakon::train
