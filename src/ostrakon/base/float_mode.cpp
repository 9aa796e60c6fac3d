// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/base/float_mode.hpp>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace ostrakon {
namespace {

#if defined(__x86_64__)

constexpr std::uint64_t noted_exceptions = 0x3F;
constexpr std::uint64_t flushes = 0x8000 | 0x0040;  // results (FTZ) and operands (DAZ)

std::uint64_t read() { return _mm_getcsr() & ~noted_exceptions; }
void write(std::uint64_t control) {
  _mm_setcsr(static_cast<unsigned>(control | (_mm_getcsr() & noted_exceptions)));
}

#elif defined(__aarch64__)

// FZ flushes fp32 and fp64. fp16 has its own bit, FZ16, which stays off: its subnormal numbers are
// not slow, and are needed.
constexpr std::uint64_t flushes = std::uint64_t{1} << 24;

std::uint64_t read() {
  std::uint64_t control;
  asm volatile("mrs %0, fpcr" : "=r"(control));
  return control;
}
void write(std::uint64_t control) { asm volatile("msr fpcr, %0" : : "r"(control)); }

#else

constexpr std::uint64_t flushes = 0;
std::uint64_t read() { return 0; }
void write(std::uint64_t) {}

#endif

}  // namespace

FloatMode FloatMode::of_this_thread() { return FloatMode(read()); }

FloatMode FloatMode::with(Subnormals subnormals) const {
  return FloatMode(subnormals == Subnormals::flush ? bits_ | flushes : bits_ & ~flushes);
}

void FloatMode::use() const { write(bits_); }

Subnormals FloatMode::subnormals() const {
  return flushes != 0 && (bits_ & flushes) == flushes ? Subnormals::flush : Subnormals::keep;
}

}  // namespace ostrakon
