// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace ostrakon::train {

/// From this call until the process ends, SIGTERM, SIGUSR2 and SIGUSR1 are only noted for
/// SignalRequests: they may come before there is a run, and after its last step. To be called first
/// in main: it blocks them in this thread, and in threads that it starts later. Matrix products of
/// oneDNN 2 do not tolerate signals: a handler's frame on their stack corrupts results or the heap.
void note_signals();

/// Requests of users and batch systems to a run: SIGTERM and SIGUSR2, to save a checkpoint and
/// stop; SIGUSR1, or a file, to save one and continue. Signals are the process's, which has to note
/// them (note_signals); its ranks have to agree on the reaction.
class SignalRequests {
 public:
  /// `file`: the path to watch on this rank; empty: none.
  explicit SignalRequests(std::string file);

  struct Found {
    bool save = false;
    bool stop = false;
  };
  /// Returns the requests since the last call. Removes the file.
  Found take();
  /// Whether a stop is requested; the request is not consumed.
  static bool wants_stop();

 private:
  std::string file_;
  bool ignores_file_ = false;  // the file could not be removed after it was seen
};

/// Seconds since this process was started.
double seconds_since_start();

}  // namespace ostrakon::train
