// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/exact_sum.hpp>

#include <cmath>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/rows/row_kernel.hpp>

namespace ostrakon::math {
namespace {

constexpr int digit_bits = 32;
constexpr int value_limbs = exact_sum_limbs - 1;
constexpr int lowest_exponent = -1074;  // bit 0 of limb 0: the smallest subnormal

void check_limbs(const char* name, std::int64_t limbs) {
  require(limbs >= exact_sum_limbs, name, ": ", limbs, " limbs, expected ", exact_sum_limbs);
}

/// Adds doubles to the limbs, as one thread of many or as the only one. A term changes three
/// adjacent limbs, mostly the same as the term before, so these are cached here until another
/// position is needed.
template <bool one_of_many, class Space>
class LimbWriter {
 public:
  KOKKOS_INLINE_FUNCTION explicit LimbWriter(View<std::int64_t*, Space> limbs) : limbs_(limbs) {}

  KOKKOS_INLINE_FUNCTION void add(double term) {
    const auto bits = bits_as<std::uint64_t>(term);
    const int exponent = static_cast<int>(bits >> 52 & 0x7FF);
    std::uint64_t significand = bits & 0xFFFFFFFFFFFFFu;
    if (exponent == 0x7FF) {
      ++non_finite_;
      return;
    }
    if (exponent > 0) significand |= std::uint64_t{1} << 52;
    const int position = exponent > 0 ? exponent - 1 : 0;
    if (position / digit_bits != first_) {
      flush();
      first_ = position / digit_bits;
    }
    const int shift = position % digit_bits;
    const std::uint64_t low = significand << shift;
    // There are two shifts, as a shift by 64 is undefined.
    const std::uint64_t high = significand >> 1 >> (63 - shift);
    // Digits are in [-2^31, 2^31), so that those of many terms mostly cancel, and a limb holds 2^32
    // terms in the worst case.
    const std::int64_t digit0 = centered(low & 0xFFFFFFFFu);
    const std::int64_t middle = static_cast<std::int64_t>(low >> 32) + (digit0 < 0 ? 1 : 0);
    const std::int64_t digit1 = centered(static_cast<std::uint64_t>(middle) & 0xFFFFFFFFu);
    const std::int64_t digit2 = static_cast<std::int64_t>(high) + ((middle - digit1) >> digit_bits);
    const std::int64_t sign = bits >> 63 ? -1 : 1;
    digits_[0] += sign * digit0;
    digits_[1] += sign * digit1;
    digits_[2] += sign * digit2;
  }

  KOKKOS_INLINE_FUNCTION void flush() {
    for (int i = 0; i < 3; ++i) {
      if (digits_[i] != 0) add_to(limbs_(first_ + i), digits_[i]);
      digits_[i] = 0;
    }
    if (non_finite_ != 0) add_to(limbs_(value_limbs), non_finite_);
    non_finite_ = 0;
  }

 private:
  KOKKOS_INLINE_FUNCTION static void add_to(std::int64_t& limb, std::int64_t digits) {
    if constexpr (one_of_many)
      Kokkos::atomic_add(&limb, digits);
    else
      limb += digits;
  }
  KOKKOS_INLINE_FUNCTION static std::int64_t centered(std::uint64_t digit) {
    return static_cast<std::int64_t>(digit) - (digit >> 31 ? std::int64_t{1} << digit_bits : 0);
  }

  View<std::int64_t*, Space> limbs_;
  int first_ = 0;
  std::int64_t digits_[3] = {0, 0, 0};
  std::int64_t non_finite_ = 0;
};

/// Sum of x[i]^2 over one block, in a fixed order: eight lanes, which are then added from left to
/// right.
template <class T>
KOKKOS_INLINE_FUNCTION double sum_of_squares(const T* x, std::int64_t count) {
  constexpr int lanes = 8;
  double lane[lanes] = {};
  const std::int64_t whole = count / lanes * lanes;
  for (std::int64_t i = 0; i < whole; i += lanes) {
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC unroll 1  // GCC vectorises this loop, but none that it has unrolled
#endif
    for (int l = 0; l < lanes; ++l) {
      const double value = static_cast<double>(x[i + l]);
      lane[l] = multiply_add(value, value, lane[l]);
    }
  }
  for (std::int64_t i = whole; i < count; ++i) {
    const double value = static_cast<double>(x[i]);
    lane[i - whole] = multiply_add(value, value, lane[i - whole]);
  }
  double sum = 0;
  for (int l = 0; l < lanes; ++l) sum += lane[l];
  return sum;
}

#if OSTRAKON_ON_DEVICE

/// Computes sum_of_squares of blocks by a team: a thread has one lane of each of its blocks, so
/// that neighbours read adjacent elements, and another one adds the lanes from left to right. A
/// team's limbs are first summed in shared memory, as all teams add to the same limbs.
template <class T>
void add_squares_by_team(const Exec& exec, View<const T*> x, View<std::int64_t*> limbs) {
  constexpr int lanes = 8, blocks_at_once = 32, rounds = 32;
  constexpr std::int64_t blocks_of_team = std::int64_t{blocks_at_once} * rounds;
  constexpr int limb_count = exact_sum_limbs;
  constexpr std::size_t scratch =
      sizeof(double) * lanes * blocks_at_once + sizeof(std::int64_t) * exact_sum_limbs;
  for_each_team(
      exec, "add_squares", items_for(x.size(), blocks_of_team * norm_block), lanes * blocks_at_once,
      scratch, KOKKOS_LAMBDA(const TeamMember& team) {
        constexpr std::size_t bytes = scratch;
        auto* const lane_sums = static_cast<double*>(team.team_scratch(0).get_shmem(bytes));
        const View<std::int64_t*> team_limbs(
            reinterpret_cast<std::int64_t*>(lane_sums + std::int64_t{lanes} * blocks_at_once),
            int{limb_count});
        Kokkos::parallel_for(Kokkos::TeamVectorRange(team, int{limb_count}),
                             [&](int i) { team_limbs[i] = 0; });
        team.team_barrier();
        for (int round = 0; round < rounds; ++round) {
          const std::int64_t first_block =
              team.league_rank() * blocks_of_team + std::int64_t{round} * blocks_at_once;
          const std::int64_t first = first_block * norm_block;
          if (first >= x.size()) break;
          const int count =
              static_cast<int>(smaller(x.size() - first, blocks_at_once * norm_block));
          const T* const from = x.data() + first;
          Kokkos::parallel_for(
              Kokkos::TeamVectorRange(team, lanes * blocks_at_once), [&](int item) {
                const int begin = item / lanes * static_cast<int>(norm_block) + item % lanes;
                double sum = 0;
                for (int i = 0; i < norm_block; i += lanes) {
                  if (begin + i >= count) break;
                  const double value = static_cast<double>(from[begin + i]);
                  sum = multiply_add(value, value, sum);
                }
                lane_sums[item] = sum;
              });
          team.team_barrier();
          const int blocks = static_cast<int>(items_for(count, norm_block));
          Kokkos::parallel_for(Kokkos::TeamVectorRange(team, blocks), [&](int block) {
            double sum = 0;
            for (int l = 0; l < lanes; ++l) sum += lane_sums[block * lanes + l];
            LimbWriter<true, OnDevice> writer(team_limbs);
            writer.add(sum);
            writer.flush();
          });
          team.team_barrier();
        }
        Kokkos::parallel_for(Kokkos::TeamVectorRange(team, int{limb_count}), [&](int i) {
          if (team_limbs[i] != 0) Kokkos::atomic_add(&limbs[i], std::int64_t{team_limbs[i]});
        });
      });
}

#endif

/// Adds the squares of blocks [begin, end) of x.
template <bool one_of_many, class T, class Space>
void add_blocks(View<const T*, Space> x, std::int64_t begin, std::int64_t end,
                View<std::int64_t*, Space> limbs) {
  LimbWriter<one_of_many, Space> writer(limbs);
  for (std::int64_t block = begin; block < end; ++block) {
    // Compilers unroll the loop over a whole block, whose size is a constant.
    const std::int64_t first = block * norm_block;
    const std::int64_t count = smaller(norm_block, x.size() - first);
    const T* const from = x.range(first, first + count).data();
    writer.add(count == norm_block ? sum_of_squares(from, norm_block)
                                   : sum_of_squares(from, count));
  }
  writer.flush();
}

/// The magnitude of the accumulated integer, after carries: digit i counts 2^(32 i +
/// lowest_exponent).
struct Digits {
  std::uint32_t digit[value_limbs];
  bool negative;

  explicit Digits(HostView<const std::int64_t*> limbs) : negative(carry(limbs, 1) < 0) {
    if (negative) carry(limbs, -1);
  }

  bool bit(int position) const {
    return digit[position / digit_bits] >> (position % digit_bits) & 1;
  }

 private:
  /// Computes the digits of sign * limbs; returns the remaining carry, -1 for a negative value.
  std::int64_t carry(HostView<const std::int64_t*> limbs, std::int64_t sign) {
    std::int64_t over = 0;
    for (int i = 0; i < value_limbs; ++i) {
      // The sum is made in two parts, as limb + over may not fit into 64 bits.
      const std::int64_t low = sign * (limbs[i] & 0xFFFFFFFF) + (over & 0xFFFFFFFF);
      digit[i] = static_cast<std::uint32_t>(low);
      over = sign * (limbs[i] >> digit_bits) + (over >> digit_bits) + (low >> digit_bits);
    }
    return over;
  }
};

template <class T>
void add_squares_on(const Exec& exec, View<const T*> x, View<std::int64_t*> limbs) {
#if OSTRAKON_ON_DEVICE
  add_squares_by_team(exec, x, limbs);
#else
  constexpr std::int64_t blocks_per_item = 64;
  const std::int64_t blocks = items_for(x.size(), norm_block);
  for_each_item(
      exec, "add_squares", items_for(blocks, blocks_per_item), KOKKOS_LAMBDA(std::int64_t item) {
        add_blocks<true>(x, item * blocks_per_item, smaller((item + 1) * blocks_per_item, blocks),
                         limbs);
      });
#endif
}

template <class T>
void add_squares_on(const CallingThread&, HostView<const T*> x, HostView<std::int64_t*> limbs) {
  add_blocks<false>(x, 0, items_for(x.size(), norm_block), limbs);
}

}  // namespace

template <class T, class Space>
void add_squares(const ExecutorFor<Space>& where, View<const T*, Space> x,
                 View<std::int64_t*, Space> limbs) {
  check_limbs("add_squares", limbs.size());
  add_squares_on(where, x, limbs);
}

template <class T>
void add_terms(const Exec& exec, View<const T*> x, View<std::int64_t*> limbs) {
  check_limbs("add_terms", limbs.size());
  constexpr std::int64_t terms_per_item = per_item(4096, 16);
  for_each_item(
      exec, "add_terms", items_for(x.size(), terms_per_item), KOKKOS_LAMBDA(std::int64_t item) {
        LimbWriter<true, OnDevice> writer(limbs);
        const std::int64_t end = smaller((item + 1) * terms_per_item, x.size());
        for (std::int64_t i = item * terms_per_item; i < end; ++i)
          writer.add(static_cast<double>(x[i]));
        writer.flush();
      });
}

void exact_sum_add(HostView<std::int64_t*> limbs, double term) {
  check_limbs("exact_sum_add", limbs.size());
  LimbWriter<false, OnHost> writer(limbs);
  writer.add(term);
  writer.flush();
}

void exact_sum_carry(HostView<std::int64_t*> limbs) {
  check_limbs("exact_sum_carry", limbs.size());
  std::int64_t over = 0;
  for (int i = 0; i + 1 < value_limbs; ++i) {
    // The sum is made in two parts, as limb + over may not fit into 64 bits.
    const std::int64_t low = (limbs[i] & 0xFFFFFFFF) + (over & 0xFFFFFFFF);
    over = (limbs[i] >> digit_bits) + (over >> digit_bits) + (low >> digit_bits);
    limbs[i] = low & 0xFFFFFFFF;
  }
  limbs[value_limbs - 1] += over;  // the last limb keeps the sign
}

double exact_sum_value(HostView<const std::int64_t*> limbs) {
  check_limbs("exact_sum_value", limbs.size());
  const Digits sum(limbs);
  int top = value_limbs * digit_bits - 1;
  while (top >= 0 && !sum.bit(top)) --top;
  if (top < 0) return 0.0;

  // A double keeps the 53 bits from `top` down; fewer if subnormal.
  const int last = top > 52 ? top - 52 : 0;
  std::int64_t significand = 0;
  for (int i = top; i >= last; --i) significand = 2 * significand + (sum.bit(i) ? 1 : 0);
  if (last > 0 && sum.bit(last - 1)) {
    bool more_than_half = false;
    for (int i = 0; i < last - 1 && !more_than_half; ++i) more_than_half = sum.bit(i);
    if (more_than_half || significand % 2 == 1) ++significand;
  }
  const double magnitude = std::ldexp(static_cast<double>(significand), last + lowest_exponent);
  return sum.negative ? -magnitude : magnitude;
}

std::int64_t exact_sum_non_finite(HostView<const std::int64_t*> limbs) {
  check_limbs("exact_sum_non_finite", limbs.size());
  return limbs[value_limbs];
}

#define OSTRAKON_INSTANTIATE(T)                                                                    \
  template void add_squares<T>(const Exec&, View<const T*>, View<std::int64_t*>);                  \
  template void add_squares<T>(const CallingThread&, HostView<const T*>, HostView<std::int64_t*>); \
  template void add_terms<T>(const Exec&, View<const T*>, View<std::int64_t*>);
OSTRAKON_INSTANTIATE(float)
OSTRAKON_INSTANTIATE(double)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::math
