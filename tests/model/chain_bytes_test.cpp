// SPDX-License-Identifier: Apache-2.0
// `saved` and workspaces of any number of bytes. Also compiled with views that check: these sizes
// are no multiple of the element that the chain computes with.

#include <gtest/gtest.h>

#include "model/small_chain.hpp"

namespace ostrakon::tests {
namespace {

/// y = 3 x. Saves three bytes, the last of them the factor, and counts in one 32-bit integer.
template <class T>
class OddBytes final : public Unit<T> {
 public:
  UnitDescription describe() const override {
    UnitDescription unit;
    unit.name = "odd";
    unit.input = unit.output = small_all;
    unit.saved_bytes = 3;
    unit.forward[0].workspace_bytes = unit.backward[0].workspace_bytes = 4;
    return unit;
  }
  void forward(const ForwardCall<T>& call) const override {
    const auto x = call.input;
    const auto y = call.output;
    const auto saved = call.saved.template array<std::uint8_t>(0, 3);
    const auto count = call.workspace.template array<std::int32_t>(0, 1);
    for_each(
        call.exec, 1, KOKKOS_LAMBDA(std::int64_t) {
          for (count(0) = 0; count(0) < 3; ++count(0))
            saved(count(0)) = static_cast<std::uint8_t>(count(0) + 1);
          for (std::int64_t i = 0; i < y.size(); ++i) y(i) = T(saved(2) * x(i));
        });
  }
  void backward(const BackwardCall<T>& call) const override {
    const auto g = call.gradient;
    const auto saved = call.saved.template array<std::uint8_t>(0, 3);
    const auto count = call.workspace.template array<std::int32_t>(0, 1);
    for_each(
        call.exec, 1, KOKKOS_LAMBDA(std::int64_t) {
          for (count(0) = 0; count(0) < small_all; ++count(0))
            g(count(0)) = T(saved(2) * g(count(0)));
        });
  }
};

template <class T>
Chain<T> odd_chain() {
  Units<T> units;
  units.push_back(std::make_unique<Source<T>>());
  units.push_back(std::make_unique<OddBytes<T>>());
  units.push_back(std::make_unique<Squares<T>>(Fault::none));
  return {std::move(units), {small_rows, SmallSamples().sample_bytes()}};
}

TEST(ChainBytes, NeedNotBeWholeElements) {
  SmallSamples samples;
  const GradientReport of_double = check_gradients(odd_chain<double>(), samples);
  EXPECT_TRUE(of_double.passed()) << of_double.text();
  const GradientReport of_float = check_gradients(odd_chain<float>(), samples);
  EXPECT_TRUE(of_float.passed()) << of_float.text();
}

TEST(ChainBytes, ReachAModelOfATypeKnownAtRunTime) {
  const auto model = model::make_chain_model(odd_chain<float>());
  const Kokkos::View<std::byte*, Memory> memory("test array", 4 * 64);
  const View<std::byte*> all = device_view(memory);
  model::UnitBuffers<void> buffers;
  buffers.input = all.range(0, 40);
  buffers.output = all.range(64, 104);
  buffers.saved = all.range(128, 131);
  buffers.workspace = all.range(192, 196);
  model->forward(1, Exec(), buffers);
  const auto bytes = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), memory);
  EXPECT_EQ(bytes(130), std::byte{3});
  EXPECT_EQ(bytes(192), std::byte{3});
}

}  // namespace
}  // namespace ostrakon::tests
