// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/resource.h>

#include <csignal>

namespace ostrakon::tests {

/// Files of this process can't grow: one way in which a system refuses shared memory.
class NoFiles {
 public:
  NoFiles() : before_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &limit_);
    const rlimit none = {0, limit_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &none);
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
