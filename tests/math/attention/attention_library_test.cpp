// SPDX-License-Identifier: Apache-2.0
// Attention by a library: the choice, trials and workspaces, with a double of a library that calls
// own kernels; and on a device trials of the device's library.

#include <gtest/gtest.h>

#include <map>
#include <ostrakon/base/text.hpp>
#include <ostrakon/math/attention/attention_library.hpp>
#include <ostrakon/math/attention/attention_on_chip.hpp>
#include <ostrakon/math/launch_count.hpp>
#include <ostrakon/math/warm_up.hpp>

#include "math/half_kernels.hpp"
#include "support/device_array.hpp"

namespace ostrakon::math {
namespace {

using test::DeviceArray;
using test::random_values;
using test::same_bits;

enum class Fault { none, refuses, has_other_scale, has_bits_of_batch, is_not_repeatable };

struct Calls {
  int forward = 0, backward = 0;
};

/// Computes by own kernels, on copies, and then makes an error.
template <class T>
class OwnKernels : public AttentionLibrary {
 public:
  OwnKernels(Fault fault, Calls& calls) : fault_(fault), calls_(calls) {}

  std::string name() const override { return "double 1.0"; }

  std::string forward(const Exec& exec, const AttentionShape& shape, DType,
                      const AttentionArrays& a, LibraryWorkspace workspace) override {
    ++calls_.forward;
    if (fault_ == Fault::refuses) return "has no plan";
    const Copies copies(*this, exec, shape, a, workspace);
    attention_forward<T>(exec, copies.shape, copies.qkv, 0, shape.tokens, copies.out, copies.sums,
                         copies.room);
    copies.take(exec, a.out, copies.out, shape.out_columns(), 0);
    const View<float*> sums(a.log_sum_exp, copies.sums.size());
    Kokkos::deep_copy(exec, sums.kokkos(), copies.sums.view().kokkos());
    exec.fence();
    if (makes_error(shape, calls_.forward)) static_cast<T*>(a.out.written())[0] = T(0.5f);
    return {};
  }

  std::string backward(const Exec& exec, const AttentionShape& shape, DType,
                       const AttentionArrays& a, LibraryWorkspace workspace) override {
    ++calls_.backward;
    if (fault_ == Fault::refuses) return "has no plan";
    const Copies copies(*this, exec, shape, a, workspace);
    const std::int64_t keys = shape.query_columns();
    const std::int64_t values = keys + shape.value_column(0);
    attention_backward<T>(exec, copies.shape, copies.qkv, copies.out, copies.sums, copies.dout,
                          copies.dqkv, copies.room);
    copies.take(exec, a.dqueries, copies.dqkv, keys, 0);
    copies.take(exec, a.dkeys, copies.dqkv, values - keys, keys);
    copies.take(exec, a.dvalues, copies.dqkv, shape.kv_heads * shape.width_of_values(), values);
    if (makes_error(shape, calls_.backward)) static_cast<T*>(a.dkeys.written())[0] = T(0.5f);
    return {};
  }

 private:
  struct Copies {
    AttentionShape shape;
    DeviceArray<T> memory[4], room;
    DeviceArray<float> sums;
    View<T**> qkv, out, dout, dqkv;

    Copies(const OwnKernels& library, const Exec& exec, const AttentionShape& of,
           const AttentionArrays& a, LibraryWorkspace workspace)
        : shape(of),
          memory{array(of.query_columns() + of.kv_columns()), array(of.out_columns()),
                 array(of.out_columns()), array(of.query_columns() + of.kv_columns())},
          room(attention_backward_workspace<T>(own(of))),
          sums(of.batch * of.heads * of.tokens) {
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(workspace.data) % 256, 0u);
      EXPECT_GE(workspace.bytes, 4096);
      EXPECT_EQ(of.heads % of.kv_heads, 0);
      shape = own(of);
      if (library.fault_ == Fault::has_other_scale) shape.scores.scale = 0.2;
      const std::int64_t rows = of.batch * of.tokens, keys = of.query_columns();
      const std::int64_t columns = keys + of.kv_columns();
      qkv = memory[0].matrix(rows, columns);
      out = memory[1].matrix(rows, of.out_columns());
      dout = memory[2].matrix(rows, of.out_columns());
      dqkv = memory[3].matrix(rows, columns);
      give(exec, a.queries, qkv, keys, 0);
      give(exec, a.keys, qkv, of.value_column(0), keys);
      give(exec, a.values, qkv, of.kv_heads * of.width_of_values(), keys + of.value_column(0));
      if (a.dout.data == nullptr) return;
      give(exec, a.out, out, of.out_columns(), 0);
      give(exec, a.dout, dout, of.out_columns(), 0);
      const View<const float*> given(a.log_sum_exp, sums.size());
      Kokkos::deep_copy(exec, sums.view().kokkos(), given.kokkos());
    }
    DeviceArray<T> array(std::int64_t columns) const {
      return DeviceArray<T>(shape.batch * shape.tokens * columns);
    }
    static AttentionShape own(AttentionShape of) {
      of.library = LibraryUse::never;
      return of;
    }
    static View<T**> of_call(const HeadRows& from, std::int64_t rows, std::int64_t columns) {
      return {static_cast<T*>(from.written()), rows, columns, from.stride};
    }
    static void give(const Exec& exec, const HeadRows& from, const View<T**>& to,
                     std::int64_t columns, std::int64_t first) {
      copy_rows<T, T>(exec, of_call(from, to.rows(), columns),
                      to.column_range(first, first + columns));
    }
    void take(const Exec& exec, const HeadRows& to, const View<T**>& from, std::int64_t columns,
              std::int64_t first) const {
      copy_rows<T, T>(exec, from.column_range(first, first + columns),
                      of_call(to, from.rows(), columns));
      exec.fence();
    }
  };

  bool makes_error(const AttentionShape& shape, int call) const {
    return (fault_ == Fault::has_bits_of_batch && shape.batch == 1) ||
           (fault_ == Fault::is_not_repeatable && call % 2 == 0);
  }

  Fault fault_;
  Calls& calls_;
};

/// The arrays of forward and backward, as a block has them.
template <class T>
struct Arrays {
  AttentionShape shape;
  DeviceArray<T> qkv, out, dout, dqkv, room;
  DeviceArray<float> sums;

  explicit Arrays(const AttentionShape& s)
      : shape(s),
        qkv(values(s, s.query_columns() + s.kv_columns(), 1)),
        out(s.batch * s.tokens * s.out_columns()),
        dout(values(s, s.out_columns(), 2)),
        dqkv(qkv.size()),
        room(std::max(attention_forward_workspace<T>(s), attention_backward_workspace<T>(s))),
        sums(s.batch * s.heads * s.tokens) {}

  static std::vector<T> values(const AttentionShape& s, std::int64_t columns, int seed) {
    std::vector<T> all;
    for (const double x : random_values<double>(s.batch * s.tokens * columns, seed))
      all.push_back(T(static_cast<float>(x)));
    return all;
  }
  View<T**> matrix(const DeviceArray<T>& x) const {
    const std::int64_t rows = shape.batch * shape.tokens;
    return x.matrix(rows, x.size() / rows);
  }
  void compute() const {
    attention_forward<T>(Exec(), shape, matrix(qkv), 0, shape.tokens, matrix(out), sums, room);
    attention_backward<T>(Exec(), shape, matrix(qkv), matrix(out), sums, matrix(dout), matrix(dqkv),
                          room);
    Exec().fence();
  }
};

AttentionShape shape_for(std::int64_t batch, std::int64_t tokens, std::int64_t heads,
                         std::int64_t kv_heads, std::int64_t width,
                         LibraryUse use = LibraryUse::always, std::int64_t value_width = 0) {
  AttentionShape shape{batch, tokens, heads, kv_heads, width, {}, value_width};
  shape.library = use;
  return shape;
}

constexpr bool can_use_a_library = kernel_form == KernelForm::device_on_chip;

template <class T>
class AttentionLibraryOf : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!can_use_a_library) GTEST_SKIP() << "kernels of this form use no library";
    if (has_device) GTEST_SKIP() << "the double writes to host memory";
  }
  void TearDown() override { use_attention_library(nullptr); }
};
TYPED_TEST_SUITE(AttentionLibraryOf, halves::Halves);

TYPED_TEST(AttentionLibraryOf, IsUsedAfterTrialsThatFindNothing) {
  using T = TypeParam;
  for (const AttentionShape& shape :
       {shape_for(2, 70, 4, 2, 64), shape_for(1, 33, 2, 2, 128), shape_for(3, 20, 3, 1, 72),
        shape_for(2, 40, 2, 2, 192, LibraryUse::automatic, 128)}) {
    SCOPED_TRACE(text(shape.batch, " x ", shape.tokens, ", heads of ", shape.head_width));
    Calls calls;
    use_attention_library(std::make_unique<OwnKernels<T>>(Fault::none, calls));
    AttentionShape own_shape = shape;
    own_shape.library = LibraryUse::never;
    const Arrays<T> own(own_shape), arrays(shape);
    own.compute();
    arrays.compute();
    EXPECT_EQ(calls.forward + calls.backward, 0) << "before a trial";
    {
      const WarmUp scope;
      arrays.compute();
      arrays.compute();
    }
    const std::vector<LibraryFinding> found = library_findings();
    ASSERT_EQ(found.size(), 2u);
    EXPECT_EQ(found[0].refusal, "");
    EXPECT_EQ(found[1].refusal, "");
    EXPECT_EQ(found[0].is_required, shape.library == LibraryUse::always);
    calls = {};
    const Arrays<T> by_library(shape);
    by_library.compute();
    EXPECT_EQ(calls.forward, 1);
    EXPECT_EQ(calls.backward, 1);
    EXPECT_TRUE(same_bits(by_library.out.host(), own.out.host()));
    EXPECT_TRUE(same_bits(by_library.dqkv.host(), own.dqkv.host()));
    refuse_attention_library(found[0].what, "a rank has none");
    by_library.compute();
    EXPECT_EQ(calls.forward, 1) << "after it was refused";
    EXPECT_EQ(calls.backward, 2);
    EXPECT_EQ(library_findings()[0].refusal, "a rank has none");
  }
}

TYPED_TEST(AttentionLibraryOf, IsNotUsedAfterTrialsThatFindAFault) {
  using T = TypeParam;
  const std::map<Fault, const char*> faults = {
      {Fault::refuses, "has no plan"},
      {Fault::has_other_scale, "from own kernels; expected"},
      {Fault::has_bits_of_batch, "has other bits when it is computed alone"},
      {Fault::is_not_repeatable, "has other bits when it is computed again"}};
  const AttentionShape shape = shape_for(2, 40, 4, 2, 64);
  for (const auto& [fault, message] : faults) {
    SCOPED_TRACE(message);
    Calls calls;
    use_attention_library(std::make_unique<OwnKernels<T>>(fault, calls));
    const Arrays<T> arrays(shape);
    {
      const WarmUp scope;
      arrays.compute();
    }
    const std::vector<LibraryFinding> found = library_findings();
    ASSERT_EQ(found.size(), 2u);
    for (const LibraryFinding& one : found)
      EXPECT_NE(one.refusal.find(message), std::string::npos) << one.what << ": " << one.refusal;
    calls = {};
    arrays.compute();
    EXPECT_EQ(calls.forward + calls.backward, 0);
  }
}

TYPED_TEST(AttentionLibraryOf, IsNotThere) {
  use_attention_library(nullptr);
  const Arrays<TypeParam> arrays(shape_for(1, 20, 2, 2, 64));
  {
    const WarmUp scope;
    arrays.compute();
  }
  ASSERT_EQ(library_findings().size(), 2u);
  EXPECT_EQ(library_findings()[0].refusal, "this build has no cuDNN");
}

TEST(AttentionByLibrary, IsForSomeShapes) {
  const auto why_not = [](const AttentionShape& shape, DType dtype = DType::bf16,
                          KernelForm form = KernelForm::device_on_chip) {
    return why_not_by_library(shape, dtype, form);
  };
  for (const std::int64_t width : {64, 80, 96, 128, 192, 256})
    EXPECT_EQ(why_not(shape_for(1, 20, 4, 2, width)), "") << width;
  EXPECT_EQ(why_not(shape_for(1, 20, 4, 4, 192, LibraryUse::always, 128)), "");
  EXPECT_EQ(why_not(shape_for(1, 20, 4, 2, 64), DType::fp32),
            "activations in fp32; expected bf16 or fp16");
  EXPECT_EQ(why_not(shape_for(1, 20, 4, 2, 64), DType::bf16, KernelForm::device),
            "kernels for gpu; expected nvidia");
  for (const std::int64_t width : {32, 60, 264})
    EXPECT_EQ(why_not(shape_for(1, 20, 4, 2, width)),
              text("heads of ", width, " with values of ", width,
                   "; expected multiples of 8 from 64 to 256"));
  EXPECT_EQ(why_not(shape_for(1, 1, 4, 2, 64)), "sequences of 1 token; expected 2 or more");
  AttentionShape shape = shape_for(1, 20, 4, 2, 64);
  shape.scores.soft_cap = 30;
  EXPECT_EQ(why_not(shape), "capped scores; expected none");
  shape.scores = {};
  shape.scores.slopes = 4;
  EXPECT_EQ(why_not(shape), "slopes of ALiBi; expected none");
}

// By `auto` a step needs no workspace for scores where own kernels are on chip.
TEST(AttentionByLibrary, ComputesBackwardWhereOwnKernelsAreNotOnChip) {
  const auto is_for = [](const AttentionShape& shape, AttentionPass pass) {
    return is_for_library(shape, DType::bf16, KernelForm::device_on_chip, pass);
  };
  for (const std::int64_t width : {64, 96, 128, 256}) {
    const bool is_on_chip =
        attention_on_chip<bf16>(shape_for(1, 20, 2, 2, width), KernelForm::device_on_chip);
    const AttentionShape automatic = shape_for(1, 20, 2, 2, width, LibraryUse::automatic);
    EXPECT_TRUE(is_for(automatic, AttentionPass::forward)) << width;
    EXPECT_EQ(is_for(automatic, AttentionPass::backward), !is_on_chip) << width;
    EXPECT_TRUE(is_for(shape_for(1, 20, 2, 2, width), AttentionPass::backward)) << width;
    EXPECT_FALSE(is_for(shape_for(1, 20, 2, 2, width, LibraryUse::never), AttentionPass::forward));
  }
}

/// Workspaces of plans of cuDNN 9.19 for sm_80, sm_90 and sm_100, and of 9.26 for sm_90: the most
/// bytes of any of them.
TEST(AttentionByLibrary, WorkspacesAreAtLeastThoseOfPlans) {
  struct Case {
    AttentionShape shape;
    std::int64_t bytes;
  };
  for (const Case& one :
       std::vector<Case>{{shape_for(4, 2048, 32, 8, 64), 1141899520},
                         {shape_for(16, 1024, 12, 12, 64), 403439872},
                         {shape_for(2, 4096, 32, 8, 128), 2282750208},
                         {shape_for(1, 8192, 32, 8, 128), 4430233856},
                         {shape_for(1, 1024, 32, 8, 128), 84017408},
                         {shape_for(1, 1024, 16, 4, 256), 50397440},
                         {shape_for(1, 1024, 16, 16, 192, LibraryUse::always, 128), 33620224},
                         {shape_for(1, 1024, 16, 16, 80), 33620224},
                         {shape_for(1, 1000, 16, 16, 64), 33618688}}) {
    SCOPED_TRACE(
        text(one.shape.batch, " x ", one.shape.tokens, ", heads of ", one.shape.head_width));
    const AttentionShape part = library_backward_part(one.shape);
    EXPECT_EQ(one.shape.batch % part.batch, 0);
    EXPECT_EQ(one.shape.kv_heads % part.kv_heads, 0);
    EXPECT_EQ(part.heads * one.shape.kv_heads, one.shape.heads * part.kv_heads);
    EXPECT_TRUE(part.batch == 1 || part.heads == one.shape.heads);
    const std::int64_t planned = library_workspace_bytes(one.shape, AttentionPass::backward);
    const std::int64_t fraction =
        one.shape.batch / part.batch * (one.shape.kv_heads / part.kv_heads);
    EXPECT_GE(planned, one.bytes / fraction);
    EXPECT_LE(planned, library_backward_limit + 4096);
    EXPECT_LE(planned, 2 * one.bytes / fraction + (std::int64_t{128} << 10));
    EXPECT_EQ(attention_backward_workspace<bf16>(one.shape, 1, KernelForm::device_on_chip),
              std::max<std::int64_t>(
                  planned / 2, attention_backward_workspace<bf16>(
                                   shape_for(one.shape.batch, one.shape.tokens, one.shape.heads,
                                             one.shape.kv_heads, one.shape.head_width,
                                             LibraryUse::never, one.shape.value_width),
                                   1, KernelForm::device_on_chip)));
  }
}

TEST(AttentionByLibrary, IsCounted) {
  if (!can_use_a_library) GTEST_SKIP() << "kernels of this form use no library";
  const AttentionShape shape = shape_for(4, 2048, 32, 8, 64);
  const AttentionShape part = library_backward_part(shape);
  const LaunchCount count;
  const std::int64_t rows = shape.batch * shape.tokens;
  const View<bf16**> qkv(nullptr, rows, shape.query_columns() + shape.kv_columns());
  const View<bf16**> out(nullptr, rows, shape.out_columns());
  const View<float*> sums(nullptr, rows * shape.heads);
  attention_forward<bf16>(Exec(), shape, qkv, 0, shape.tokens, out, sums, {});
  EXPECT_EQ(count.launches(), 1);
  attention_backward<bf16>(Exec(), shape, qkv, out, sums, out, qkv, {});
  EXPECT_EQ(count.launches(), 1 + 5 * shape.batch / part.batch);
}

// The library of this build on a device: what benchmarks/pytorch and docs/gpu.md compute.
TEST(AttentionByLibrary, OfTheDevicePassesTrials) {
  if (!can_use_a_library || !has_device) GTEST_SKIP() << "this build computes on the host";
  use_attention_library(make_attention_library());
  if (attention_library() == nullptr) GTEST_SKIP() << "this build has no library";
  AttentionShape windowed = shape_for(1, 2048, 8, 2, 128);
  windowed.scores.window = 256;
  for (const AttentionShape& shape :
       {shape_for(4, 2048, 32, 8, 64), shape_for(16, 1024, 12, 12, 64),
        shape_for(2, 4096, 32, 8, 128), shape_for(2, 1000, 8, 8, 96),
        shape_for(2, 1024, 16, 16, 192, LibraryUse::always, 128), windowed}) {
    const Arrays<bf16> arrays(shape);
    const WarmUp scope;
    arrays.compute();
  }
  for (const LibraryFinding& found : library_findings())
    EXPECT_EQ(found.refusal, "") << attention_library()->name() << ": " << found.what;
}

}  // namespace
}  // namespace ostrakon::math
