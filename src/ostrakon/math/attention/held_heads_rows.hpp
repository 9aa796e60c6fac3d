// SPDX-License-Identifier: Apache-2.0
#pragma once

// What kernels of norms of heads on a device have in common. Neighbouring lanes of a warp hold a
// head: each has a vector of the first half, and the one at the same place in the second half,
// whose elements are rotated together. A team has a block of rows. It has slots, of these lanes,
// each with some heads of all of these rows; sines and cosines are made once for all heads and lie
// in shared memory.

#include <ostrakon/math/attention/held_heads.hpp>
#include <ostrakon/math/block_team.hpp>
#include <ostrakon/math/rows/norm_rows.hpp>
#include <ostrakon/math/rows/row_blocks.hpp>

namespace ostrakon::math {

#if OSTRAKON_ON_DEVICE

/// Lanes of a team, at most; half of them for an array, whose sums depend on no other array.
constexpr int most_lanes_of_heads = 512;

/// What lanes hold of a head; in tests on a host one thread has what all lanes hold.
template <class T, int n>
class HeldHead {
 public:
  /// From an array of which both halves of heads begin at vectors.
  KOKKOS_FUNCTION void load(int lane, const T* head, int half) {
    low(lane) = load_vector<n>(head + lane * n);
    high(lane) = load_vector<n>(head + half + lane * n);
  }
  KOKKOS_FUNCTION void store(int lane, T* head, int half) const {
    store_vector<n>(head + lane * n, low(lane));
    store_vector<n>(head + half + lane * n, high(lane));
  }
  KOKKOS_FUNCTION Vector<T, n>& low(int lane) { return low_[lane % held]; }
  KOKKOS_FUNCTION Vector<T, n>& high(int lane) { return high_[lane % held]; }
  KOKKOS_FUNCTION const Vector<T, n>& low(int lane) const { return low_[lane % held]; }
  KOKKOS_FUNCTION const Vector<T, n>& high(int lane) const { return high_[lane % held]; }

 private:
#if OSTRAKON_IN_DEVICE_CODE
  static constexpr int held = 1;
#else
  static constexpr int held = 32;
#endif
  Vector<T, n> low_[held] = {}, high_[held] = {};
};

/// Norms of heads of one array, or of queries and keys in one kernel.
template <NormWeight gain, class T>
class HeldHeadsKernel {
 public:
  using C = compute_t<T>;
  static constexpr int n = vector_elements<T>();
  using Head = HeldHead<T, n>;

  HeldHeadsKernel(const HeadNorm& norm, const HeldArrays<T>& arrays, int count,
                  const RowBlocks& blocks)
      : arrays_(arrays),
        blocks_(blocks),
        width_(static_cast<int>(norm.head_width)),
        centered_(norm.kind == NormKind::layernorm),
        epsilon_(static_cast<C>(norm.epsilon)),
        by_pairs_(norm.head_width / 2) {
    while (lanes_ < width_ / (2 * n)) lanes_ *= 2;
    // Each array may take half of the lanes and half of the memory: half of the table, and the sums
    // of its slots. Forward has the same slots, so that it holds heads alike.
    for (int i = 0; i < count; ++i) {
      const auto fits = [&] {
        slots_[i] = static_cast<int>(items_for(heads(i), heads_of_slot_[i]));
        return slots_[i] * lanes_ <= most_lanes_of_heads / 2 &&
               bytes_of(static_cast<int>(rows_of_norm_block) / 2 + slots_[i]) <= most_bytes / 2;
      };
      while (!fits()) ++heads_of_slot_[i];
    }
  }
  void rotate_by(const RowRotation& rotation) {
    rotates_ = true;
    rotation_ = rotation;
  }
  void sum_into(const Kokkos::Array<View<C**>, 2>& sums) { sums_ = sums; }

  /// Runs `Body`, a class of kernels with this one as its base.
  template <class Body>
  static void run(const Exec& exec, const char* name, const Body& body) {
    constexpr std::int64_t warp = 32;
    const std::int64_t lanes = items_for(body.all_slots() * body.lanes_, warp) * warp;
    for_each_block_team<most_lanes_of_heads>(
        exec, name, body.blocks_.count(), products_on_device ? static_cast<int>(lanes) : 1,
        body.bytes_of(body.table_rows() + body.sum_rows()), body);
  }

 protected:
  KOKKOS_FUNCTION int all_slots() const { return slots_[0] + slots_[1]; }
  KOKKOS_FUNCTION int half() const { return width_ / 2; }
  KOKKOS_FUNCTION std::int64_t heads(int i) const { return arrays_[i].in.columns() / width_; }

  /// Shared memory has sines and cosines of all rows, and the sums of each slot: so many heads.
  static constexpr int most_bytes = 42 << 10;
  KOKKOS_FUNCTION int table_rows() const {
    return rotates_ ? static_cast<int>(rows_of_norm_block) : 0;
  }
  KOKKOS_FUNCTION int sum_rows() const { return sums_[0] || sums_[1] ? all_slots() : 0; }
  KOKKOS_FUNCTION int bytes_of(int of_heads) const {
    return of_heads * width_ * static_cast<int>(sizeof(float));
  }
  KOKKOS_FUNCTION float* memory(const BlockTeam& team) const {
    return static_cast<float*>(team.memory(bytes_of(table_rows() + sum_rows())));
  }

  /// body(i) for i in [0, count) by all threads of a team.
  template <class Body>
  KOKKOS_FUNCTION static void for_each_item_of(const BlockTeam& team, int count, const Body& body) {
    for (int i = team.rank(); i < count; i += team.size()) body(i);
  }
  KOKKOS_FUNCTION void fill_table(const BlockTeam& team, std::int64_t begin, std::int64_t end,
                                  float* table) const {
    if (rotates_)
      rotation_.fill(team, begin, static_cast<int>(end - begin), half(), by_pairs_, table);
  }
  KOKKOS_FUNCTION void rotate(int lane, Head& head, const float* turned) const {
    Vector<T, n>&a = head.low(lane), &b = head.high(lane);
    const auto sine = load_vector<n>(turned + std::ptrdiff_t{lane} * n);
    const auto cosine = load_vector<n>(turned + half() + lane * n);
    for (int k = 0; k < n; ++k) rotate_pair(a.at[k], b.at[k], sine.at[k], cosine.at[k]);
  }

  template <class Body>
  KOKKOS_FUNCTION void for_each_lane([[maybe_unused]] const BlockTeam& team,
                                     const Body& body) const {
    const int used = half() / n;
#if OSTRAKON_IN_DEVICE_CODE
    if (const int lane = team.rank() & (lanes_ - 1); lane < used) body(lane);
#else
    for (int lane = 0; lane < used; ++lane) body(lane);
#endif
  }
  /// The sum over a head of f(elements of `in`...), in an order that depends on the width alone.
  template <class F, class... In>
  KOKKOS_FUNCTION C sum(const BlockTeam& team, const F& f, const In&... in) const {
    C own = 0;
    for_each_lane(team, [&](int lane) {
      for (int k = 0; k < n; ++k) own = plus<C>(own, f(C(in.low(lane).at[k])...));
      for (int k = 0; k < n; ++k) own = plus<C>(own, f(C(in.high(lane).at[k])...));
    });
    return sum_of_lanes(own, lanes_);
  }
  struct Statistics {
    C center, scale;
  };
  KOKKOS_FUNCTION Statistics statistics_of(const BlockTeam& team, const Head& in) const {
    const C over_width = C(1) / static_cast<C>(width_);
    C center = 0;
    if (centered_)
      center = sum(
                   team, [](C value) { return value; }, in) *
               over_width;
    const C squares = sum(
        team,
        [=](C value) {
          return Product<C>{value - center, value - center};
        },
        in);
    return {center, C(1) / sqrt(multiply_add(squares, over_width, epsilon_))};
  }

  /// A head of an array, and whether it is there: all lanes of a warp sum together, those behind
  /// the last head with another one's.
  struct Place {
    int array;
    std::int64_t head, column;
    bool exists;
  };
  /// body(slot) for the slots of a team, on a device in threads of their own.
  template <class Body>
  KOKKOS_FUNCTION void for_each_slot([[maybe_unused]] const BlockTeam& team,
                                     const Body& body) const {
#if OSTRAKON_IN_DEVICE_CODE
    body(team.rank() / lanes_);
#else
    for (int slot = 0; slot < all_slots(); ++slot) body(slot);
#endif
  }
  template <class Body>
  KOKKOS_FUNCTION void for_each_head(int slot, const Body& body) const {
    const int most = heads_of_slot_[0] > heads_of_slot_[1] ? heads_of_slot_[0] : heads_of_slot_[1];
    const int i = slot < slots_[0] || slots_[1] == 0 ? 0 : 1;
    const int first = (slot - (i == 0 ? 0 : slots_[0])) * heads_of_slot_[i];
    const int all = static_cast<int>(heads(i));
    for (int k = 0; k < most; ++k) {
      const bool exists = k < heads_of_slot_[i] && first + k < all;
      const int head = exists ? first + k : all - 1;
      body(Place{i, head, std::int64_t{head} * width_, exists});
    }
  }
  KOKKOS_FUNCTION void load_weight(const BlockTeam& team, const Place& place, Head& factors) const {
    if (gain == NormWeight::none) return;
    const View<const T*>& weight = arrays_[place.array].weight;
    const T* const from = weight.data() + (weight.size() == width_ ? 0 : place.column);
    for_each_lane(team, [&](int lane) {
      factors.low(lane) = load_lanes<n>(from, lane * n, width_);
      factors.high(lane) = load_lanes<n>(from, half() + lane * n, width_);
    });
  }

  HeldArrays<T> arrays_;
  int slots_[2] = {}, heads_of_slot_[2] = {1, 1};
  RowBlocks blocks_;
  int width_, lanes_ = 1;
  bool centered_, rotates_ = false;
  C epsilon_;
  FastDivide by_pairs_;
  RowRotation rotation_{{}, {FastDivide(1), 0, {}}};
  Kokkos::Array<View<C**>, 2> sums_;  ///< by block of rows; null: not wanted
};

#endif

}  // namespace ostrakon::math
