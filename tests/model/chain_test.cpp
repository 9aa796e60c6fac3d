// SPDX-License-Identifier: Apache-2.0
// A chain of units describes itself to the planner, and refuses what can't be.

#include <gtest/gtest.h>

#include <functional>
#include <ostrakon/base/error.hpp>

#include "model/small_chain.hpp"
#include "support/scratch_folder.hpp"

namespace ostrakon::tests {
namespace {

/// A unit that describes itself as it is told, and computes nothing.
class Described final : public Unit<float> {
 public:
  explicit Described(UnitDescription description) : description_(std::move(description)) {}
  UnitDescription describe() const override { return description_; }
  void forward(const ForwardCall<float>&) const override {}
  void backward(const BackwardCall<float>&) const override {}

 private:
  UnitDescription description_;
};

using Descriptions = std::vector<UnitDescription>;

Descriptions small_descriptions() {
  Descriptions all;
  for (const auto& unit : small_units<float>()) all.push_back(unit->describe());
  return all;
}

Chain<float> chain_of(const Descriptions& descriptions) {
  Units<float> units;
  for (const UnitDescription& one : descriptions) units.push_back(std::make_unique<Described>(one));
  return {std::move(units), {small_rows, SmallSamples().sample_bytes()}};
}

std::string refusal(const std::function<void(Descriptions&)>& change) {
  Descriptions all = small_descriptions();
  change(all);
  return testing::error_of([&] { chain_of(all); });
}

TEST(Chain, DescribesItselfToThePlanner) {
  BendKind frozen, in_phases;
  frozen.is_frozen = true;
  in_phases.has_phases = true;
  const Chain<float> chain = small_chain<float>(frozen, in_phases);
  const plan::ModelDescription& model = chain.description();
  ASSERT_EQ(model.units.size(), 5u);
  EXPECT_EQ(model.batch_bytes, small_all * 4);
  EXPECT_EQ(model.gradient_bytes, small_all * 4);
  EXPECT_EQ(model.element_bytes, 4);
  EXPECT_EQ(model.units[0].parameter_elements, 0);
  EXPECT_TRUE(model.units[0].reads_batch);
  EXPECT_FALSE(model.units[0].recomputes);
  const plan::UnitDescription& first = model.units[1];
  EXPECT_EQ(first.parameter_elements, 2 * 64);
  EXPECT_EQ(first.frozen_elements, 64);
  EXPECT_EQ(first.frozen_count, small_width);
  EXPECT_TRUE(first.recomputes);
  EXPECT_FALSE(first.reads_batch);
  EXPECT_EQ(model.units[2].forward.size(), 2u);
  EXPECT_EQ(model.units[3].tied_to, 1);
  EXPECT_TRUE(model.units[3].tied_gradients);
  // Losses are float; its backward begins with its forward.
  EXPECT_EQ(model.units[4].output_bytes, small_rows * 4);
  EXPECT_EQ(model.units[4].backward.size(), 2u);
  EXPECT_EQ(chain.parameters(2)[1].full_name(), "bend.1.shift");
  EXPECT_EQ(chain.parameters(2)[1].offset, 64);
  EXPECT_EQ(make_model(small_chain<float>())->parameter_count(), 5 * small_width);
}

TEST(Chain, OfSixteenBitsHasLossesAndGradientsOfFloat) {
  const Chain<bf16> chain = small_chain<bf16>();
  EXPECT_EQ(chain.description().units[4].output_bytes, small_rows * 4);
  EXPECT_EQ(chain.description().units[1].output_bytes, small_all * 2);
  EXPECT_EQ(chain.description().master_bytes, 4);
  EXPECT_EQ(make_model(small_chain<bf16>())->dtype(), DType::bf16);
}

TEST(Chain, FreezesByName) {
  const Chain<float> chain(small_units<float>(), {small_rows, 4 * small_width},
                           [](const std::string& name) { return name == "bend.1.scale"; });
  EXPECT_TRUE(chain.parameters(2)[0].frozen);
  EXPECT_FALSE(chain.parameters(1)[0].frozen);
}

TEST(Chain, RefusesToFreezeNothing) {
  const auto chain_with = [](const char* frozen) {
    return testing::error_of([&] {
      Chain<float>(small_units<float>(), {small_rows, 4 * small_width},
                   [&](const std::string& name) { return name == frozen; });
    });
  };
  EXPECT_EQ(chain_with("squares.target"), "no error");
  EXPECT_EQ(chain_with("bend.1.scales"),
            "frozen, the third argument of Chain, names no parameter of the chain, the first of "
            "which is bend.0.scale");
}

TEST(Chain, RefusesWhatCannotBe) {
  EXPECT_EQ(refusal([](Descriptions&) {}), "no error");
  EXPECT_EQ(refusal([](Descriptions& all) { all[2].input = 7; }),
            "unit bend.1 reads 7 elements, but unit bend.0 before it writes 10");
  EXPECT_EQ(refusal([](Descriptions& all) { all[0].input = 3; }),
            "unit source reads 3 elements, but is the first: expected 0, as it reads the batch");
  EXPECT_EQ(refusal([](Descriptions& all) { all[0].reads_batch = false; }),
            "unit source is the first and reads nothing: expected reads_batch");
  EXPECT_EQ(refusal([](Descriptions& all) { all[4].is_loss = false; }),
            "unit squares is the last and computes no losses: expected is_loss");
  EXPECT_EQ(refusal([](Descriptions& all) { all[1].is_loss = true; }),
            "unit bend.0 computes losses, but is not the last unit");
  EXPECT_EQ(refusal([](Descriptions& all) { all[2].name = "bend.0"; }),
            "two units have the name bend.0");
  EXPECT_EQ(refusal([](Descriptions& all) { all[2].name = "a b"; }),
            "unit 2 of a chain has the name 'a b'; expected letters, digits, '_', '-' and '.'");
  EXPECT_EQ(refusal([](Descriptions& all) { all[2].saved_bytes = -1; }),
            "unit bend.1 has saved bytes: -1; expected at least 0");
  EXPECT_EQ(refusal([](Descriptions& all) { all[0].output = 0; }), "unit source has no output");
  EXPECT_EQ(refusal([](Descriptions& all) { all[1].backward[0].workspace_bytes = -8; }),
            "unit bend.0: backward has a workspace of -8 bytes");
  EXPECT_EQ(refusal([](Descriptions& all) { all[1].forward[0].flops = -1; }),
            "unit bend.0: forward takes -1 floating-point operations, and 0 to recompute");
  EXPECT_EQ(refusal([](Descriptions& all) { all[1].forward.clear(); }),
            "unit bend.0: forward has no phase");
  EXPECT_EQ(refusal([](Descriptions& all) { all[1].parameters[1].name = "scale"; }),
            "unit bend.0: two parameters have the name scale");
  EXPECT_EQ(refusal([](Descriptions& all) {
              all[1].parameters[1].shape = {3, 0};
            }),
            "unit bend.0: parameter shift has an extent of 0; expected at least 1");
  EXPECT_EQ(refusal([](Descriptions& all) { all[1].parameters[1].name = "a/b"; }),
            "unit bend.0: a parameter has the name 'a/b'; expected letters, digits, '_', '-' and "
            "'.'");
  EXPECT_EQ(refusal([](Descriptions& all) {
              all[1].name = "bend";
              all[3].tied_to.clear();
              all[1].parameters[0].name = "1.scale";
            }),
            "units bend and bend.1 both have a parameter with the full name bend.1.scale");
  EXPECT_EQ(refusal([](Descriptions& all) { all[3].tied_to = "squares"; }),
            "unit tied is tied to squares, which is no unit before it");
  EXPECT_EQ(refusal([](Descriptions& all) { all[2].tied_to = "bend.0"; }),
            "unit tied is tied to bend.0, to which another unit is tied; expected one at most");
  EXPECT_EQ(refusal([](Descriptions& all) {
              all[2].tied_to = "bend.0";
              all[3].tied_to = "bend.1";
            }),
            "unit tied is tied to bend.1, which is tied to another unit itself");
  EXPECT_EQ(refusal([](Descriptions& all) { all.erase(all.begin(), all.end() - 1); }),
            "a chain of 1 units; expected at least one, and then the one that computes the losses");
  EXPECT_EQ(testing::error_of([] {
              Chain<float>(small_units<float>(), {0, 20});
            }),
            "a leaf of 0 samples of 20 bytes; expected at least 1 of each");
}

TEST(Chain, RefusesSizesThatOverflow) {
  constexpr std::int64_t half = std::int64_t{1} << 49, huge = std::int64_t{1} << 62;
  const std::string all_bytes = "; expected at most 1125899906842624 bytes in all units";
  EXPECT_EQ(refusal([](Descriptions& all) {
              all[1].parameters[0].shape = {huge, 4};
            }),
            "unit bend.0: parameter scale is too large; expected at most 1125899906842624 elements "
            "in all units");
  EXPECT_EQ(refusal([](Descriptions& all) { all[1].saved_bytes = huge; }),
            text("unit bend.0 has saved bytes: ", huge, all_bytes));
  // Each by itself is possible.
  EXPECT_EQ(refusal([](Descriptions& all) {
              all[1].forward[0].workspace_bytes = half;
              all[2].backward[0].workspace_bytes = half;
            }),
            text("unit bend.1 has workspace bytes: ", half, all_bytes));
  EXPECT_EQ(refusal([](Descriptions& all) { all[0].output = all[1].input = huge; }),
            text("unit source has elements of output: ", huge, all_bytes));
  EXPECT_EQ(
      testing::error_of([] {
        Chain<float>(small_units<float>(), {huge, 4});
      }),
      text("a leaf of ", huge, " samples of 4 bytes; expected at most 1125899906842624 bytes"));
}

TEST(Chain, RefusesExchangesOfWrongSizes) {
  const auto refuse = [](int ranks, std::int64_t elements, std::int64_t bytes) {
    return refusal([&](Descriptions& all) {
      all[1].forward.resize(2);
      all[1].forward[1].reads = {0};
      all[1].forward[0].then =
          plan::Exchange{plan::ExchangeKind::gather, {plan::Axis::shard, ranks}, elements, bytes};
    });
  };
  EXPECT_EQ(refuse(2, 10, 4), "no error");
  EXPECT_EQ(refuse(0, 10, 4),
            "unit bend.0: forward exchanges 10 elements of 4 bytes over 0 ranks; expected at least "
            "0, 1 and 1");
  EXPECT_NE(refuse(2, -2, 4), "no error");
  EXPECT_NE(refuse(2, 10, 0), "no error");
  EXPECT_EQ(refuse(4, 10, 4),
            "unit bend.0: forward exchanges 10 elements over 4 ranks; expected equal parts");
  EXPECT_NE(refuse(2, std::int64_t{1} << 61, 8), "no error");
}

/// Reads a batch though its description does not say so.
class Reader final : public Unit<double> {
 public:
  UnitDescription describe() const override {
    UnitDescription unit = Squares<double>(Fault::none).describe();
    unit.name = "reader";
    return unit;
  }
  void forward(const ForwardCall<double>& call) const override {
    call.batch.array<float>(0, small_all);
  }
  void backward(const BackwardCall<double>&) const override {}
};

TEST(Chain, NamesTheBatchThatAUnitDoesNotSayItReads) {
  Units<double> units;
  units.push_back(std::make_unique<Source<double>>());
  units.push_back(std::make_unique<Reader>());
  const Chain<double> chain(std::move(units), {small_rows, 4 * small_width});
  SmallSamples samples;
  EXPECT_EQ(testing::error_of([&] { check_gradients(chain, samples); }),
            "unit reader, forward: 10 elements of 4 bytes from byte 0 on of its batch (reads_batch "
            "is false), which has 0 bytes");
}

/// Takes its output for a matrix in each call, or throws in backward.
class Matrix final : public Unit<double> {
 public:
  explicit Matrix(bool throws_in_backward) : throws_in_backward_(throws_in_backward) {}
  UnitDescription describe() const override {
    UnitDescription unit;
    unit.name = "matrix";
    unit.input = unit.output = small_all;
    unit.saved_bytes = 8;
    return unit;
  }
  void forward(const ForwardCall<double>& call) const override {
    const auto saved = call.saved.array<double>(0, 1);
    const auto x = call.input;
    const auto y = call.output;
    for_each(
        call.exec, 1, KOKKOS_LAMBDA(std::int64_t) { saved(0) = x(0); });
    if (throws_in_backward_ && call.recomputes) return;
    as_matrix(y, small_rows, small_width);
    for_each(
        call.exec, small_all, KOKKOS_LAMBDA(std::int64_t i) { y(i) = x(i); });
  }
  void backward(const BackwardCall<double>&) const override { throw Error("no table"); }

 private:
  bool throws_in_backward_;
};

TEST(Chain, NamesUnitAndCallOfWhatAUnitThrows) {
  const auto message = [](bool in_backward) {
    Units<double> units;
    units.push_back(std::make_unique<Source<double>>());
    units.push_back(std::make_unique<Matrix>(in_backward));
    units.push_back(std::make_unique<Squares<double>>(Fault::none));
    const Chain<double> chain(std::move(units), {small_rows, 4 * small_width});
    SmallSamples samples;
    return testing::error_of([&] { check_gradients(chain, samples); });
  };
  EXPECT_EQ(message(false),
            "unit matrix, forward that recomputes: a matrix of 2 x 5 in an array of 0 elements");
  EXPECT_EQ(message(true), "unit matrix, backward: no table");
}

TEST(Bytes, RefuseArraysBeyondThem) {
  alignas(64) std::byte memory[64] = {};
  const Bytes<std::byte> bytes({memory, 64}, "saved");
  EXPECT_EQ(bytes.array<float>(16, 12).size(), 12);
  EXPECT_EQ(testing::error_of([&] { bytes.array<float>(16, 13); }),
            "13 elements of 4 bytes from byte 16 on of its saved, which has 64 bytes");
  EXPECT_NE(testing::error_of([&] { bytes.array<double>(4, 1); }), "no error");
  EXPECT_NE(testing::error_of([&] { bytes.array<float>(68, 0); }), "no error");
  EXPECT_NE(testing::error_of([&] { bytes.array<float>(0, -1); }), "no error");
  EXPECT_EQ(testing::error_of([&] { as_matrix(bytes.array<float>(0, 16), 3, 6); }),
            "a matrix of 3 x 6 in an array of 16 elements");
}

}  // namespace
}  // namespace ostrakon::tests
