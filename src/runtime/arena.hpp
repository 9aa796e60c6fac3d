// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <ostrakon/math/portability.hpp>

namespace ostrakon::runtime {

/// The one allocation of a run: planned memory in `Memory`. Not initialised, so that pages come to
/// the rank that first writes them.
class Arena {
 public:
  explicit Arena(std::int64_t bytes);
  /// Forgets what an executor in a sanitizer build has forbidden.
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::byte* data() const { return reinterpret_cast<std::byte*>(view_.data()); }
  std::int64_t bytes() const { return static_cast<std::int64_t>(view_.extent(0)); }

 private:
  Kokkos::View<char*, Memory> view_;
};

}  // namespace ostrakon::runtime
