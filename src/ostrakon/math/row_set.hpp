// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/math/portability.hpp>

namespace ostrakon::math {

/// A set of up to 32,768 indices in memory that the threads of a team share: a bit for each, and a
/// bit for each word of these that is not 0, so that few indices are found fast. Threads add
/// indices in any order; they are read in ascending order.
class RowSet {
 public:
  static constexpr int capacity = 32768, words = capacity / 32, groups = words / 32;
  static constexpr std::size_t bytes = sizeof(std::uint32_t) * (words + groups);

  KOKKOS_INLINE_FUNCTION explicit RowSet(void* memory)
      : word_(static_cast<std::uint32_t*>(memory)), group_(word_ + words) {}

  /// Sets word i < words + groups to 0.
  KOKKOS_INLINE_FUNCTION void clear(int i) const { word_[i] = 0; }
  KOKKOS_INLINE_FUNCTION void add(int index) const {
    Kokkos::atomic_fetch_or(&word_[index / 32], std::uint32_t{1} << index % 32);
    Kokkos::atomic_fetch_or(&group_[index / 1024], std::uint32_t{1} << index / 32 % 32);
  }

  /// Goes through the indices.
  class Reader {
   public:
    KOKKOS_INLINE_FUNCTION explicit Reader(const RowSet& set) : set_(set) {}
    /// Returns the next index, or -1.
    KOKKOS_INLINE_FUNCTION int next() {
      while (bits_ == 0) {
        while (words_left_ == 0) {
          if (++group_ == groups) return -1;
          words_left_ = set_.group_[group_];
        }
        word_ = group_ * 32 + take_lowest(words_left_);
        bits_ = set_.word_[word_];
      }
      return word_ * 32 + take_lowest(bits_);
    }

   private:
    KOKKOS_INLINE_FUNCTION static int take_lowest(std::uint32_t& bits) {
#if defined(__CUDA_ARCH__) || defined(__HIP_DEVICE_COMPILE__)
      const int lowest = __ffs(static_cast<int>(bits)) - 1;
#else
      int lowest = 0;
      while ((bits >> lowest & 1) == 0) ++lowest;
#endif
      bits &= bits - 1;
      return lowest;
    }

    const RowSet& set_;
    std::uint32_t words_left_ = 0, bits_ = 0;
    int group_ = -1, word_ = 0;
  };

 private:
  std::uint32_t* word_;
  std::uint32_t* group_;
};

}  // namespace ostrakon::math
