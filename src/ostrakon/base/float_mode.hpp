// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/base/names.hpp>

namespace ostrakon {

/// How arithmetic treats subnormal numbers, which are smaller than the smallest normal number
/// (2^-126 in fp32). On many processors each of them costs a hundred cycles or more.
enum class Subnormals {
  flush,  ///< reads them as 0, and returns 0 in place of them
  keep    ///< follows IEEE 754
};
constexpr Named<Subnormals> subnormals_names[] = {{Subnormals::flush, "flush"},
                                                  {Subnormals::keep, "keep"}};

/// Whether threads of this processor architecture can flush subnormal numbers: x86-64 and 64-bit
/// Arm.
#if defined(__x86_64__) || defined(__aarch64__)
constexpr bool can_flush_subnormals = true;
#else
constexpr bool can_flush_subnormals = false;
#endif

/// The control state of a thread's floating-point unit: subnormal numbers, rounding and traps. A
/// program that calls this library may have set any; a new thread inherits it from the thread that
/// creates it.
class FloatMode {
 public:
  static FloatMode of_this_thread();
  /// Returns this mode with `subnormals` set; unchanged if can_flush_subnormals is false.
  FloatMode with(Subnormals subnormals) const;
  /// Sets this mode for the calling thread. Exception flags that are raised stay raised.
  void use() const;
  Subnormals subnormals() const;

  bool operator==(const FloatMode& other) const { return bits_ == other.bits_; }
  bool operator!=(const FloatMode& other) const { return !(*this == other); }

 private:
  explicit FloatMode(std::uint64_t bits) : bits_(bits) {}

  std::uint64_t bits_;  // control bits of MXCSR or FPCR
};

/// Sets how the calling thread treats subnormal numbers until the end of the scope.
class FloatModeScope {
 public:
  explicit FloatModeScope(Subnormals subnormals) : before_(FloatMode::of_this_thread()) {
    before_.with(subnormals).use();
  }
  ~FloatModeScope() { before_.use(); }
  FloatModeScope(const FloatModeScope&) = delete;
  FloatModeScope& operator=(const FloatModeScope&) = delete;

 private:
  FloatMode before_;
};

}  // namespace ostrakon
