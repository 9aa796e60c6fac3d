// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/resource.h>

#include <csignal>

namespace ostrakon::tests {

/// Limits files of this process to `bytes`: the system then refuses shared memory, and truncates
/// writes.
class NoFiles {
 public:
  explicit NoFiles(rlim_t bytes = 0) : before_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &limit_);
    const rlimit few = {bytes, limit_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &few);
  }
  NoFiles(const NoFiles&) = delete;
  NoFiles& operator=(const NoFiles&) = delete;
  ~NoFiles() {
    ::setrlimit(RLIMIT_FSIZE, &limit_);
    std::signal(SIGXFSZ, before_);
  }

 private:
  void (*before_)(int);
  rlimit limit_ = {};
};

}  // namespace ostrakon::tests
