// SPDX-License-Identifier: Apache-2.0
#pragma once

// Norms of heads on a device, with the rotation by positions behind them, or before them in
// backward; how lanes hold heads is in held_heads_rows.hpp.

#include <ostrakon/math/attention/held_heads_rows.hpp>

namespace ostrakon::math {

#if OSTRAKON_ON_DEVICE

/// out = the norm of `in`, rotated; kept = in.
template <NormWeight gain, class T>
struct HeldHeadsForward : HeldHeadsKernel<gain, T> {
  using Base = HeldHeadsKernel<gain, T>;
  using Base::Base;
  using typename Base::C, typename Base::Head;

  KOKKOS_FUNCTION void operator()(const BlockTeam& team) const {
    const std::int64_t block = team.index();
    const std::int64_t begin = this->blocks_.begin(block), end = this->blocks_.end(block);
    float* const table = this->memory(team);
    this->fill_table(team, begin, end, table);
    const int half = this->half();
    this->for_each_slot(team, [&](int slot) {
      this->for_each_head(slot, [&](const typename Base::Place& place) {
        const HeldHeads<T>& own = this->arrays_[place.array];
        const auto load = [&](std::int64_t r, Head& in) {
          const T* const from = own.in.data() + r * own.in.stride() + place.column;
          this->for_each_lane(team, [&](int lane) { in.load(lane, from, half); });
        };
        Head factors, next;
        this->load_weight(team, place, factors);
        load(begin, next);
        for (std::int64_t r = begin; r < end; ++r) {
          const Head in = next;
          if (r + 1 < end) load(r + 1, next);
          const auto found = this->statistics_of(team, in);
          if (!place.exists) continue;
          T* const kept = own.kept.data() + r * own.kept.stride() + place.column;
          T* const out = own.out.data() + r * own.out.stride() + place.column;
          const float* const turned = table + (r - begin) * this->width_;
          this->for_each_lane(team, [&](int lane) {
            in.store(lane, kept, half);
            Head normed;
            for (int k = 0; k < Base::n; ++k) {
              const auto norm = [&](T value, T factor) {
                return static_cast<T>(
                    normalized<gain, C>(value, found.center, found.scale, factor));
              };
              normed.low(lane).at[k] = norm(in.low(lane).at[k], factors.low(lane).at[k]);
              normed.high(lane).at[k] = norm(in.high(lane).at[k], factors.high(lane).at[k]);
            }
            if (this->rotates_) this->rotate(lane, normed, turned);
            normed.store(lane, out, half);
          });
        }
      });
    });
  }
};

/// out = the gradient of `in`, from dout, which is rotated first; and sums for the weights.
template <NormWeight gain, class T>
struct HeldHeadsBackward : HeldHeadsKernel<gain, T> {
  using Base = HeldHeadsKernel<gain, T>;
  using Base::Base;
  using typename Base::C, typename Base::Head, typename Base::Place;

  KOKKOS_FUNCTION void operator()(const BlockTeam& team) const {
    const std::int64_t block = team.index();
    const std::int64_t begin = this->blocks_.begin(block), end = this->blocks_.end(block);
    float* const table = this->memory(team);
    this->fill_table(team, begin, end, table);
    const int width = this->width_, slots = this->all_slots(), half = this->half();
    float* const sums_of_slots = table + this->table_rows() * width;
    const bool has_sums = this->sum_rows() > 0;
    this->for_each_slot(team, [&](int slot) {
      HeldHead<C, Base::n> sums;
      this->for_each_head(
          slot, [&](const Place& place) { differentiate(team, place, begin, end, table, sums); });
      if (!has_sums || slot >= slots) return;
      C* const to = sums_of_slots + std::ptrdiff_t{slot} * width;
      this->for_each_lane(team, [&](int lane) {
        for (int k = 0; k < Base::n; ++k) {
          to[lane * Base::n + k] = sums.low(lane).at[k];
          to[half + lane * Base::n + k] = sums.high(lane).at[k];
        }
      });
    });
    if (!has_sums) return;
    team.barrier();
    this->for_each_item_of(team, 2 * width, [&](int item) {
      const int i = item < width ? 0 : 1, column = item - i * width;
      const View<C**>& to = this->sums_[i];
      if (!to) return;
      const int first = i == 0 ? 0 : this->slots_[0];
      C total = 0;
      for (int slot = first; slot < first + this->slots_[i]; ++slot)
        total += sums_of_slots[slot * width + column];
      store_vector<1>(to.data() + block * to.stride() + column, Vector<C, 1>{{total}});
    });
  }

 private:
  /// Computes the gradients of one head in rows [begin, end), and adds the head's terms to `sums`.
  KOKKOS_FUNCTION void differentiate(const BlockTeam& team, const Place& place, std::int64_t begin,
                                     std::int64_t end, const float* table,
                                     HeldHead<C, Base::n>& sums) const {
    const HeldHeads<T>& own = this->arrays_[place.array];
    const int half = this->half();
    const C over_width = C(1) / static_cast<C>(this->width_);
    const bool has_sums = bool(this->sums_[place.array]) && place.exists, has_out = bool(own.out);
    const auto load = [&](std::int64_t r, Head& in, Head& dout) {
      const T* const from = own.in.data() + r * own.in.stride() + place.column;
      const T* const gradient = own.dout.data() + r * own.dout.stride() + place.column;
      this->for_each_lane(team, [&](int lane) {
        in.load(lane, from, half);
        dout.load(lane, gradient, half);
      });
    };
    Head factors, next_in, next_dout;
    this->load_weight(team, place, factors);
    load(begin, next_in, next_dout);
    for (std::int64_t r = begin; r < end; ++r) {
      const Head in = next_in;
      Head dout = next_dout;
      if (r + 1 < end) load(r + 1, next_in, next_dout);
      const float* const turned = table + (r - begin) * this->width_;
      if (this->rotates_)
        this->for_each_lane(team, [&](int lane) { this->rotate(lane, dout, turned); });
      typename Base::Statistics found;
      if (own.rstd)
        found = {own.mean ? own.mean(r, place.head) : C(0), own.rstd(r, place.head)};
      else
        found = this->statistics_of(team, in);
      const C center = found.center, scale = found.scale;
      if (has_sums)
        this->for_each_lane(team, [&](int lane) {
          const auto add = [&](C& sum, T d, T value) {
            sum = with_weight_term<C>(sum, d, value, center, scale);
          };
          for (int k = 0; k < Base::n; ++k) {
            add(sums.low(lane).at[k], dout.low(lane).at[k], in.low(lane).at[k]);
            add(sums.high(lane).at[k], dout.high(lane).at[k], in.high(lane).at[k]);
          }
        });
      if (!has_out) continue;
      C average = 0;
      if (this->centered_)
        average = this->sum(
                      team,
                      [](C d, C factor) {
                        return Product<C>{d, gain_of<gain>(factor)};
                      },
                      dout, factors) *
                  over_width;
      const C projection = this->sum(
                               team,
                               [=](C d, C factor, C value) {
                                 return Product<C>{d * gain_of<gain>(factor), value - center};
                               },
                               dout, factors, in) *
                           scale * over_width;
      if (!place.exists) continue;
      T* const out = own.out.data() + r * own.out.stride() + place.column;
      this->for_each_lane(team, [&](int lane) {
        const auto differentiated = [&](C d, C factor, C value) {
          return static_cast<T>(scale *
                                multiply_add(-((value - center) * scale), projection,
                                             multiply_add(d, gain_of<gain>(factor), -average)));
        };
        for (int k = 0; k < Base::n; ++k) {
          T &low = dout.low(lane).at[k], &high = dout.high(lane).at[k];
          low = differentiated(low, factors.low(lane).at[k], in.low(lane).at[k]);
          high = differentiated(high, factors.high(lane).at[k], in.high(lane).at[k]);
        }
        dout.store(lane, out, half);
      });
    }
  }
};

/// The statistics of heads of one array.
template <class T>
struct HeldHeadsStatistics : HeldHeadsKernel<NormWeight::none, T> {
  using Base = HeldHeadsKernel<NormWeight::none, T>;
  using Base::Base;
  using typename Base::C, typename Base::Head;
  View<C**> rstd, mean;

  KOKKOS_FUNCTION void operator()(const BlockTeam& team) const {
    const std::int64_t block = team.index();
    const std::int64_t begin = this->blocks_.begin(block), end = this->blocks_.end(block);
    this->for_each_slot(team, [&](int slot) {
      this->for_each_head(slot, [&](const typename Base::Place& place) {
        const View<const T**>& all = this->arrays_[place.array].in;
        for (std::int64_t r = begin; r < end; ++r) {
          Head in;
          const T* const from = all.data() + r * all.stride() + place.column;
          this->for_each_lane(team, [&](int lane) { in.load(lane, from, this->half()); });
          const auto found = this->statistics_of(team, in);
          this->for_each_lane(team, [&](int lane) {
            if (lane > 0 || !place.exists) return;
            rstd(r, place.head) = found.scale;
            if (mean) mean(r, place.head) = found.center;
          });
        }
      });
    });
  }
};

#endif

}  // namespace ostrakon::math
