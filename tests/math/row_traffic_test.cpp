// SPDX-License-Identifier: Apache-2.0
// Kernels in their device form read each array once and write each once.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <ostrakon/base/text.hpp>
#include <ostrakon/math/attention/rotary.hpp>
#include <ostrakon/math/attention/rotated_norms.hpp>
#include <ostrakon/math/block_team.hpp>
#include <ostrakon/math/byte_count.hpp>
#include <ostrakon/math/cross_entropy/linear_cross_entropy.hpp>
#include <ostrakon/math/cross_entropy/logits.hpp>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/embedding.hpp>
#include <ostrakon/math/fp8/quantized_parts.hpp>
#include <ostrakon/math/rows/activation.hpp>
#include <ostrakon/math/rows/norm.hpp>
#include <ostrakon/math/team_cluster.hpp>
#include <ostrakon/optim/optimizer.hpp>

#include "math/compare.hpp"
#include "math/rows.hpp"
#include "support/device_array.hpp"

#if defined(OSTRAKON_COUNT_BYTES)

namespace ostrakon::math {
namespace {

using test::DeviceArray;
using test::random_values;
using test::Rows;

/// What kernels read and write of arrays that are watched, over what they have to.
class Traffic {
 public:
  template <class T>
  void watch(const DeviceArray<T>& array, int reads, int writes) {
    const auto bytes = static_cast<std::size_t>(array.size()) * sizeof(T);
    counts_.push_back(std::make_unique<ByteCount>(array.data(), bytes));
    floor_ += static_cast<double>(bytes) * (reads + writes);
  }
  /// The workspace of sums, which need not exist.
  template <class T>
  void watch_room(const DeviceArray<T>& array) {
    watch(array, 0, 0);
  }
  double ratio() const {
    double all = 0;
    for (const auto& count : counts_) all += static_cast<double>(count->read() + count->written());
    return all / floor_;
  }

 private:
  std::vector<std::unique_ptr<ByteCount>> counts_;
  double floor_ = 0;
};

/// What is read again or written for sums may be a quarter of what a kernel has to read and write.
void expect_one_pass(const char* kernel, std::int64_t width, const Traffic& traffic,
                     double most = 1.25) {
  EXPECT_GE(traffic.ratio(), 1.0) << kernel << " at " << width << " has accesses without a count";
  EXPECT_LE(traffic.ratio(), most) << kernel << " at " << width;
}

TEST(RowTraffic, ReadsAndWritesEachArrayOnce) {
  using T = bf16;
  constexpr std::int64_t rows = 128, leaves = 2;
  const Exec exec;
  // The widest is that of Llama 3 405B, whose norms a team can't hold in backward, but a cluster
  // can.
  for (const std::int64_t width : {768, 2048, 4096, 16384})
    for (const NormKind kind : {NormKind::layernorm, NormKind::rmsnorm}) {
      const bool has_bias = kind == NormKind::layernorm;
      const Rows<T> x(rows, width, 0, 1), y(rows, width, 0, 2), dx(rows, width, 0, 3),
          again(rows, width, 0, 4), both(rows, 2 * width, 0, 5), dboth(rows, 2 * width, 0, 6);
      const DeviceArray<T> weight(random_values<T>(width, 5)), bias(random_values<T>(width, 6));
      const DeviceArray<float> mean(rows), rstd(rows), dweight(width), dbias(width);
      const DeviceArray<float> room(norm_sums_workspace(rows, width, leaves));
      const View<float*> center = has_bias ? mean.view() : View<float*>();
      const View<const T*> shift = has_bias ? bias.view() : View<T*>();
      const View<float*> none;
      const NormWeight gain = NormWeight::plain;
      {
        Traffic traffic;
        traffic.watch(x.array, 1, 0);
        traffic.watch(y.array, 0, 1);
        norm_forward<T>(exec, kind, gain, 1e-5, x, weight, shift, y, center, rstd);
        expect_one_pass("norm_forward", width, traffic);
      }
      {
        Traffic traffic;
        traffic.watch(x.array, 1, 0);
        traffic.watch(y.array, 0, 1);
        norm_apply<T>(exec, kind, gain, x, weight, shift, center, rstd, y);
        expect_one_pass("norm_apply", width, traffic);
      }
      {
        Traffic traffic;
        for (const auto* in : {&x, &y}) traffic.watch(in->array, 1, 0);
        traffic.watch(dx.array, 1, 1);
        norm_backward_input<T>(exec, kind, gain, x, weight, center, rstd, y, dx);
        expect_one_pass("norm_backward_input", width, traffic);
      }
      for (const bool has_again : {false, true}) {
        Traffic traffic;
        for (const auto* in : {&x, &y}) traffic.watch(in->array, 1, 0);
        traffic.watch(dx.array, 1, 1);
        if (has_again) traffic.watch(again.array, 0, 1);
        traffic.watch_room(room);
        norm_backward<T>(exec, kind, gain, x, weight, shift, center, rstd, y, dx,
                         GradientUpdate::add, has_again ? again.view() : View<T**>(), dweight,
                         has_bias ? dbias.view() : none, {leaves, room});
        expect_one_pass("norm_backward", width, traffic);
      }
      {
        Traffic traffic;
        for (const auto* in : {&x, &y}) traffic.watch(in->array, 1, 0);
        traffic.watch_room(room);
        sum_norm_gradients<T>(exec, kind, x, center, rstd, y, dweight,
                              has_bias ? dbias.view() : none, {leaves, room});
        expect_one_pass("sum_norm_gradients", width, traffic);
      }
      const Activation activation = has_bias ? Activation::gelu : Activation::swiglu;
      const Rows<T>& in = has_bias ? x : both;
      const Rows<T>& din = has_bias ? dx : dboth;
      {
        Traffic traffic;
        traffic.watch(in.array, 1, 0);
        traffic.watch(again.array, 0, 1);
        activation_forward<T>(exec, activation, in, again);
        expect_one_pass("activation_forward", width, traffic);
      }
      for (const bool sums : {false, true}) {
        const DeviceArray<float> columns(din.width),
            column_room(column_sums_workspace(rows, din.width, leaves));
        Traffic traffic;
        for (const auto* from : {&in, &y}) traffic.watch(from->array, 1, 0);
        for (const auto* to : {&din, &again}) traffic.watch(to->array, 0, 1);
        traffic.watch_room(column_room);
        activation_backward<T>(exec, activation, in, y, din, again, sums ? columns.view() : none,
                               {leaves, column_room});
        expect_one_pass("activation_backward", width, traffic);
      }
      {
        const DeviceArray<float> column_room(column_sums_workspace(rows, width, leaves));
        Traffic traffic;
        traffic.watch(x.array, 1, 0);
        traffic.watch_room(column_room);
        sum_columns<T>(exec, x, dbias, {leaves, column_room});
        expect_one_pass("sum_columns", width, traffic);
      }
    }
}

/// Expects that call() moves what `watch` tells a Traffic once.
template <class Watch, class Call>
void expect_one_pass_of(const char* kernel, std::int64_t width, const Watch& watch,
                        const Call& call) {
  Traffic traffic;
  watch(traffic);
  call();
  expect_one_pass(kernel, width, traffic);
}

TEST(RowTraffic, OtherKernelsReadAndWriteEachArrayOnce) {
  using T = bf16;
  constexpr std::int64_t rows = 64, head_width = 64;
  const Exec exec;
  for (const std::int64_t width : {768, 2048, 4096}) {
    const Rows<T> x(rows, width, 0, 1), y(rows, width, 0, 2), table(rows, width, 0, 3);
    const Rows<float> sums(rows, width, 0, 4), dtable(rows, width, 0, 5);
    const DeviceArray<T> bias(random_values<T>(width, 6));
    std::vector<std::int32_t> words(rows);
    for (std::int64_t r = 0; r < rows; ++r) words[r] = static_cast<std::int32_t>(rows - 1 - r);
    const DeviceArray<std::int32_t> ids(words);
    const auto reads = [](const auto& from, const auto& to) {
      return [&from, &to](Traffic& traffic) {
        traffic.watch(from.array, 1, 0);
        traffic.watch(to.array, 0, 1);
      };
    };
    const auto changes = [](const auto& array) {
      return [&array](Traffic& traffic) { traffic.watch(array.array, 1, 1); };
    };
    expect_one_pass_of("rotate", width, changes(x), [&] {
      rotate<T>(exec, Rotation::forward,
                make_rotary_frequencies(RotarySettings{10000.0}, head_width, rows), x, head_width,
                rows, 0);
    });
    {
      const HeadNorm norm{head_width, NormKind::rmsnorm, NormWeight::plain, 1e-6};
      const RotaryFrequencies turns =
          make_rotary_frequencies(RotarySettings{10000.0}, head_width, rows);
      const Rows<T> keys(rows, width / 4, 0, 7), kept_keys(rows, width / 4, 0, 8);
      const DeviceArray<T> weight(random_values<T>(head_width, 9));
      const DeviceArray<float> dweight(head_width), dkey_weight(head_width);
      const std::int64_t room = head_norm_sums_workspace<T>(rows, head_width, head_width, 1);
      const DeviceArray<float> of_queries(room), of_keys(room);
      const auto normed = [&](Traffic& traffic) {
        for (const auto* changed : {&x, &keys}) traffic.watch(changed->array, 1, 1);
        for (const auto* kept : {&y, &kept_keys}) traffic.watch(kept->array, 0, 1);
      };
      expect_one_pass_of("norm_and_rotate", width, normed, [&] {
        EXPECT_TRUE(norm_and_rotate<T>(exec, norm, {turns, rows, 0},
                                       {{weight, x, y}, {weight, keys, kept_keys}}));
      });
      const auto differentiated = [&](Traffic& traffic) {
        for (const auto* changed : {&x, &keys}) traffic.watch(changed->array, 1, 1);
        for (const auto* kept : {&y, &kept_keys}) traffic.watch(kept->array, 1, 0);
        for (const auto* blocks : {&of_queries, &of_keys}) traffic.watch_room(*blocks);
      };
      expect_one_pass_of("rotate_and_norm_backward", width, differentiated, [&] {
        EXPECT_TRUE(rotate_and_norm_backward<T>(
            exec, norm, {turns, rows, 0},
            {{weight, y, x, dweight, of_queries}, {weight, kept_keys, keys, dkey_weight, of_keys}},
            1));
      });
    }
    expect_one_pass_of("add_bias", width, changes(x), [&] { add_bias<T>(exec, x, bias.view()); });
    expect_one_pass_of("convert", width, reads(sums, y), [&] {
      convert<float, T, OnDevice>(exec, sums.array.view(), y.array.view());
    });
    expect_one_pass_of("copy", width, reads(x, y),
                       [&] { copy<T>(exec, x.array.view(), y.array.view()); });
    const auto adds = [&](Traffic& traffic) {
      traffic.watch(x.array, 1, 0);
      traffic.watch(y.array, 1, 1);
    };
    expect_one_pass_of("add_to", width, adds,
                       [&] { add_to<T, OnDevice>(exec, x.array.view(), y.array.view()); });
    const auto residual = [&](Traffic& traffic) {
      traffic.watch(x.array, 1, 0);
      traffic.watch(sums.array, 1, 0);
      traffic.watch(y.array, 0, 1);
    };
    expect_one_pass_of("add_residual", width, residual,
                       [&] { add_residual<T>(exec, x, sums, bias.view(), y); });
    expect_one_pass_of("embedding_forward", width, reads(table, x),
                       [&] { embedding_forward<T>(exec, ids.view(), rows, 0, table, {}, x); });
    const auto sums_up = [&](Traffic& traffic) {
      traffic.watch(x.array, 1, 0);
      traffic.watch(dtable.array, 1, 1);
    };
    expect_one_pass_of("embedding_backward", width, sums_up, [&] {
      embedding_backward<T>(exec, ids.view(), rows, x, dtable, View<float**>());
    });
    const DeviceArray<float> first(rows * width), second(rows * width);
    const auto updates = [&](Traffic& traffic) {
      traffic.watch(sums.array, 1, 1);
      traffic.watch(dtable.array, 1, 0);
      for (const auto* moment : {&first, &second}) traffic.watch(*moment, 1, 1);
    };
    expect_one_pass_of("adamw", width, updates, [&] {
      optim::update<float, float, OnDevice>(exec, optim::OptimizerKind::adamw, {}, {},
                                            sums.array.view(), dtable.array.view(), first.view(),
                                            second.view());
    });
  }
}

/// A flat parameter in parts of 80 granules, of which 64 have codes: no part has bytes of padding.
plan::QuantizedFlat parts_with_codes(std::int64_t parts) {
  constexpr std::int64_t granule = plan::QuantizedFlat::granule;
  std::vector<plan::FlatElements> coded;
  for (std::int64_t part = 0; part < parts; ++part)
    coded.push_back({part * 80 * granule, (part * 80 + 64) * granule});
  return {coded, parts * 80 * granule, parts};
}

TEST(RowTraffic, PartsInEightBitsAreReadAndWrittenOnce) {
  constexpr std::int64_t parts = 3;
  const plan::QuantizedFlat flat = parts_with_codes(parts);
  const DeviceArray<float> masters(random_values<float>(parts * flat.part_elements, 1));
  const DeviceArray<std::uint8_t> sent(parts * flat.part_bytes);
  const DeviceArray<bf16> elements(masters.size());
  {
    Traffic traffic;
    traffic.watch(masters, 1, 0);
    traffic.watch(sent, 0, 1);
    for (std::int64_t part = 0; part < parts; ++part)
      quantize_part<OnDevice>(
          Exec(), flat, part,
          masters.view().range(part * flat.part_elements, (part + 1) * flat.part_elements),
          sent.view().range(part * flat.part_bytes, (part + 1) * flat.part_bytes));
    EXPECT_EQ(traffic.ratio(), 1.0);
  }
  Traffic traffic;
  traffic.watch(sent, 1, 0);
  traffic.watch(elements, 0, 1);
  dequantize_parts<OnDevice>(Exec(), flat, 0, sent, elements);
  // Each scale is read with each of the four vectors of its block.
  expect_one_pass("dequantize_parts", flat.part_elements, traffic, 1.03);
}

// Shared memory of a team, without what sums need, and teams of a cluster, of compute capabilities
// 7.5, 8.9, 8.0, 12.0 and 9.0; words of Llama 2, GPT-2, Llama 3, Qwen 3, Llama 4 and Gemma 3.
struct Chip {
  std::int64_t memory;
  int teams;
};
constexpr Chip chips[] = {
    {63 << 10, 1}, {98 << 10, 1}, {162 << 10, 1}, {98 << 10, 4}, {226 << 10, 4}};
constexpr std::int64_t vocabularies[] = {32000, 50257, 128256, 151936, 202048, 262144};

TEST(RowTraffic, LogitsThatDoNotStayOnChipAreReadTwice) {
  using T = bf16;
  constexpr std::int64_t rows = 3;
  for (const Chip& chip : chips)
    for (const std::int64_t words : vocabularies) {
      SCOPED_TRACE(text(words, " words, ", chip.memory, " bytes"));
      const TeamMemoryLimit limit(chip.memory);
      const ClusterLimit cluster(chip.teams);
      // As the head stores them: rows begin at whole cache lines.
      const std::int64_t stride = items_for(words, 16) * 16;
      const Rows<float> logits(rows, words, stride - words, 1);
      const Rows<T> dlogits(rows, words, stride - words, 2);
      const DeviceArray<std::int32_t> targets(std::vector<std::int32_t>{5, -1, 31999});
      const DeviceArray<float> losses(rows);
      const ByteCount read(logits.array.data(), rows * stride * sizeof(float));
      const ByteCount written(dlogits.array.data(), rows * stride * sizeof(T));
      losses_and_dlogits<T>(Exec(), {}, logits, targets.view(), 1.0f, losses, dlogits);
      EXPECT_EQ(read.written() + written.read(), 0);
      // In each team 24,576 stay in registers, and 8,192 in each 32 KiB. Of a row that does not
      // count no logit is read.
      const std::int64_t on_chip = 24576 + chip.memory / (32 << 10) * 8192;
      const std::int64_t twice = std::max<std::int64_t>(0, words - chip.teams * on_chip);
      EXPECT_NEAR(read.read(), 2.0 * 4.0 * (words + twice), 100.0);
      EXPECT_NEAR(written.written(), rows * 2.0 * words, 100.0);
      const bool fits = chip.teams > 1 || words < 60000;
      // That of a row that counts.
      const double ratio = (4.0 * (words + twice) + 2.0 * words) / (6.0 * words);
      EXPECT_EQ(ratio <= 1.25, fits) << ratio;
    }
}

TEST(RowTraffic, LogitsThatAPlanCountsAgainAreThoseReadAgain) {
  for (const std::int64_t words : {50257, 262144, 400000}) {
    const Rows<float> logits(1, words, 0, 1);
    const DeviceArray<std::int32_t> targets(std::vector<std::int32_t>{5});
    const DeviceArray<float> losses(1);
    const DeviceArray<bf16> dlogits(words);
    const ByteCount read(logits.array.data(), words * sizeof(float));
    losses_and_dlogits<bf16>(Exec(), {}, logits, targets.view(), 1.0f, losses,
                             dlogits.view().matrix(1, words));
    EXPECT_NEAR(
        read.read(),
        sizeof(float) * (words + logits_read_again<bf16>(words, KernelForm::device_on_chip)),
        100.0);
  }
  EXPECT_EQ(logits_read_again<bf16>(257, KernelForm::host), 257);
}

}  // namespace
}  // namespace ostrakon::math

#endif
