// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace ostrakon::train {

/// From now on, and until the process is gone, SIGTERM, SIGUSR2 and SIGUSR1 are only noted for
/// Triggers: they may come before there is a run, and after its last step. To be called first in
/// main: this thread, and those that it starts from now on, are not interrupted by them. Matrix
/// products of oneDNN 2 do not tolerate that: a handler's frame on their stack damages what they
/// compute, or the heap.
void note_signals();

/// Requests of users and batch systems to a run: SIGTERM and SIGUSR2, to save a checkpoint and
/// stop; SIGUSR1, or a file that is made, to save one and continue. Signals are the process', which
/// has to note them (note_signals); its ranks have to agree on what follows.
class Triggers {
 public:
  /// `file`: the path to watch on this rank; empty: none.
  explicit Triggers(std::string file);

  struct Requests {
    bool save = false;
    bool stop = false;
  };
  /// Requests not taken yet. The file is removed.
  Requests take();
  /// Whether a stop is among it, which stays there.
  static bool wants_stop();

 private:
  std::string file_;
  bool ignores_file_ = false;  // it could not be removed, and was seen
};

/// Seconds since this process was started.
double seconds_since_start();

}  // namespace ostrakon::train
