// SPDX-License-Identifier: Apache-2.0

// Preloaded: counts the threads that an OpenMP library makes. At its end a process adds a line,
// "<program> <threads>", to the file that the environment variable OSTRAKON_THREAD_COUNT names.

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

namespace {

std::atomic<int> threads{0};

/// Whether an address is in GNU's, LLVM's or Intel's.
bool is_of_openmp(const void* address) {
  Dl_info library{};
  if (dladdr(address, &library) == 0 || library.dli_fname == nullptr) return false;
  for (const char* name : {"libgomp.", "libomp.", "libiomp"})
    if (std::strstr(library.dli_fname, name) != nullptr) return true;
  return false;
}

struct Report {
  ~Report() {
    const char* const path = std::getenv("OSTRAKON_THREAD_COUNT");
    std::FILE* const file = path == nullptr ? nullptr : std::fopen(path, "a");
    if (file == nullptr) return;
    std::fprintf(file, "%s %d\n", program_invocation_short_name, threads.load());
    std::fclose(file);
  }
} report;

}  // namespace

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*begin)(void*), void* argument) {
  using Create = decltype(&pthread_create);
  static const auto real = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  if (is_of_openmp(__builtin_return_address(0))) ++threads;
  return real(thread, attributes, begin, argument);
}
