// SPDX-License-Identifier: Apache-2.0

// A Kokkos Tools library that writes regions and allocations, a line each, to the file named by
// the environment variable OSTRAKON_TOOL_LOG.

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace {

struct SpaceHandle {
  char name[64];
};

std::FILE* log_file() {
  static std::FILE* file = [] {
    const char* path = std::getenv("OSTRAKON_TOOL_LOG");
    return path == nullptr ? stderr : std::fopen(path, "w");
  }();
  return file;
}

}  // namespace

extern "C" {

void kokkosp_push_profile_region(const char* name) { std::fprintf(log_file(), "push %s\n", name); }

void kokkosp_pop_profile_region() { std::fprintf(log_file(), "pop\n"); }

void kokkosp_allocate_data(SpaceHandle, const char* label, const void*, std::uint64_t bytes) {
  std::fprintf(log_file(), "allocate %s %llu\n", label, static_cast<unsigned long long>(bytes));
}

void kokkosp_deallocate_data(SpaceHandle, const char* label, const void*, std::uint64_t bytes) {
  std::fprintf(log_file(), "deallocate %s %llu\n", label, static_cast<unsigned long long>(bytes));
}

void kokkosp_finalize_library() { std::fflush(log_file()); }
}
