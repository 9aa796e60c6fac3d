// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/base/names.hpp>

namespace ostrakon {

/// What arithmetic does with subnormal numbers, those nearer to 0 than any normal one (2^-126 in
/// fp32). On many processors each of them costs a hundred cycles or more.
enum class Subnormals {
  flush,  ///< takes them as 0, and gives 0 instead of them
  keep    ///< as IEEE 754 says
};
constexpr Named<Subnormals> subnormals_names[] = {{Subnormals::flush, "flush"},
                                                  {Subnormals::keep, "keep"}};

/// Whether threads of this kind of processor can flush subnormal numbers: x86-64 and 64-bit Arm.
#if defined(__x86_64__) || defined(__aarch64__)
constexpr bool can_flush_subnormals = true;
#else
constexpr bool can_flush_subnormals = false;
#endif

/// The mode of a thread's floating-point unit: subnormal numbers, rounding and traps. The thread of
/// a program that calls this library may have any; new threads have that of the thread that makes
/// them.
class FloatMode {
 public:
  static FloatMode of_this_thread();
  /// Returns the mode with another treatment of subnormal numbers; itself where
  /// can_flush_subnormals is false.
  FloatMode with(Subnormals subnormals) const;
  /// For this thread from now on. Exceptions that it has noted so far stay.
  void use() const;
  Subnormals subnormals() const;

  bool operator==(const FloatMode& other) const { return bits_ == other.bits_; }
  bool operator!=(const FloatMode& other) const { return !(*this == other); }

 private:
  explicit FloatMode(std::uint64_t bits) : bits_(bits) {}

  std::uint64_t bits_;  // of MXCSR or FPCR that control
};

/// The calling thread's mode with other treatment of subnormal numbers, until its end.
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
