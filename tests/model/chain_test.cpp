// SPDX-License-Identifier: Apache-2.0
// A chain of units describes itself to the planner, and refuses what can't be.

#include <gtest/gtest.h>

#include <functional>
#include <ostrakon/base/error.hpp>

#include "model/small_chain.hpp"
#include "support/scratch_folder.hpp"

namespace ostrakon::tests {
namespace {

using FloatBuilder = Builder<float>;

/// The units of a small chain, to be changed.
struct Parts {
  std::string names[4] = {"source", "bend.0", "bend.1", "squares"};
  std::function<Value(FloatBuilder&)> source = [](FloatBuilder& b) {
    return b.floats(small_width);
  };
  std::function<void(Operation<float>&)> change = [](auto&) {};  ///< of bend.0
  bool early_losses = false, late_losses = true;

  Chain<float> chain() const {
    ostrakon::Units<float> units;
    units.add(names[0], source);
    units.add(names[1], [this](FloatBuilder& b, Value x) {
      if (early_losses) return b.losses(squares<float>(x));
      Operation<float> own = bend<float>(x, {});
      change(own);
      return b.apply(own);
    });
    for (int u : {2, 3})
      units.add(names[u], [=](FloatBuilder& b, Value x) {
        return u == 3 && late_losses ? b.losses(squares<float>(x)) : b.apply(bend<float>(x, {}));
      });
    return {units, {small_rows, SmallSamples().sample_bytes()}};
  }
};

std::string refusal(const std::function<void(Parts&)>& change) {
  Parts parts;
  change(parts);
  return testing::error_of([&] { parts.chain(); });
}

TEST(Chain, DescribesItselfToThePlanner) {
  BendKind frozen;
  frozen.is_frozen = true;
  const Chain<float> chain = small_chain<float>(frozen);
  const plan::ModelDescription& model = chain.description();
  ASSERT_EQ(model.units.size(), 4u);
  EXPECT_EQ(model.batch_bytes, small_all * 4);
  EXPECT_EQ(model.gradient_bytes, small_all * 4);
  EXPECT_EQ(model.element_bytes, 4);
  EXPECT_EQ(model.units[0].parameter_elements, 0);
  EXPECT_TRUE(model.units[0].reads_batch);
  const plan::UnitDescription& first = model.units[1];
  EXPECT_EQ(first.parameter_elements, 2 * 64);
  EXPECT_EQ(first.frozen_elements, 64);
  EXPECT_EQ(first.frozen_count, small_width);
  EXPECT_FALSE(first.reads_batch);
  EXPECT_EQ(first.tied_to, -1);
  EXPECT_EQ(model.units[3].output_bytes, small_rows * 4);  // losses are float
  EXPECT_EQ(chain.parameters(2)[1].full_name(), "bend.1.shift");
  EXPECT_EQ(chain.parameters(2)[1].offset, 64);
  EXPECT_EQ(make_model(small_chain<float>())->parameter_count(), 5 * small_width);
  const Chain<float> tied = tied_chain<float>();
  EXPECT_EQ(tied.description().units[2].tied_to, 0);
  EXPECT_TRUE(tied.description().units[2].tied_gradients);
}

TEST(Chain, OfSixteenBitsHasLossesAndGradientsOfFloat) {
  const Chain<bf16> chain = small_chain<bf16>();
  EXPECT_EQ(chain.description().units[3].output_bytes, small_rows * 4);
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
  EXPECT_EQ(refusal([](Parts&) {}), "no error");
  EXPECT_EQ(refusal([](Parts& all) {
              all.source = [](FloatBuilder& b) {
                Operation<float> own{"zeros", {}, [](const OperationForward<float>&) {}};
                own.columns = small_width;
                return b.apply(own);
              };
            }),
            "unit source, as it is described: it is the first and reads nothing: expected floats, "
            "an embedding, or reads_batch");
  EXPECT_EQ(refusal([](Parts& all) { all.late_losses = false; }),
            "unit squares, as it is described: it is the last and computes no losses: expected "
            "losses or cross_entropy");
  EXPECT_EQ(refusal([](Parts& all) { all.early_losses = true; }),
            "unit bend.0, as it is described: it computes losses, but is not the last unit");
  EXPECT_EQ(refusal([](Parts& all) { all.names[2] = "bend.0"; }), "two units have the name bend.0");
  EXPECT_EQ(refusal([](Parts& all) { all.names[2] = "a b"; }),
            "unit 2 of a chain has the name 'a b'; expected letters, digits, '_', '-' and '.'");
  const std::string bend = "unit bend.0, as it is described: ";
  const auto of_parameter = [&](const std::function<void(Parameter&)>& change) {
    const std::string all = refusal(
        [&](Parts& parts) { parts.change = [&](auto& own) { change(own.parameters[1]); }; });
    EXPECT_EQ(all.substr(0, bend.size()), bend);
    return all.substr(std::min(all.size(), bend.size()));
  };
  EXPECT_EQ(of_parameter([](Parameter& shift) { shift.name = "scale"; }),
            "two parameters have the name scale");
  EXPECT_EQ(of_parameter([](Parameter& shift) {
              shift.shape = {small_width, 0};
            }),
            "parameter shift has an extent of 0; expected at least 1");
  EXPECT_EQ(of_parameter([](Parameter& shift) { shift.name = "a/b"; }),
            "a parameter has the name 'a/b'; expected letters, digits, '_', '-' and '.'");
  EXPECT_EQ(of_parameter([](Parameter& shift) { shift.deviation = -1.0; }),
            "parameter shift has a deviation of -1");
  EXPECT_EQ(of_parameter([](Parameter& shift) {
              shift.shape = {small_width, std::int64_t{1} << 50};
            }),
            "parameter shift is too large; expected at most 1125899906842624 elements in all "
            "units");
  EXPECT_EQ(refusal([](Parts& all) {
              all.names[1] = "bend";
              all.change = [](auto& own) { own.parameters[0].name = "1.scale"; };
            }),
            "units bend and bend.1 both have a parameter with the full name bend.1.scale");
}

TEST(Chain, RefusesLeavesThatCannotBe) {
  constexpr std::int64_t huge = std::int64_t{1} << 62;
  const auto of_leaf = [](const LeafSize& leaf) {
    return testing::error_of([&] { Chain<float>(small_units<float>(), leaf); });
  };
  EXPECT_EQ(of_leaf({0, 20}), "a leaf of 0 samples of 20 bytes; expected at least 1 of each");
  EXPECT_EQ(of_leaf({huge, 4}), text("a leaf of ", huge,
                                     " samples of 4 bytes; expected at most 1125899906842624 "
                                     "bytes"));
  EXPECT_EQ(testing::error_of([] {
              Chain<float>({}, {2, 20});
            }),
            "a chain of 0 units; expected at least one, and then the one that computes the losses");
}

TEST(Chain, RefusesSizesThatOverflow) {
  EXPECT_EQ(testing::error_of([] {
              ostrakon::Units<float> units;
              units.add("source", [](FloatBuilder& b) { return b.floats(1); });
              for (int u = 0; u < 5; ++u)  // each of which is possible by itself
                units.add(text("wide.", u), [](FloatBuilder& b, Value x) {
                  return b.linear(b.linear(x, "up", std::int64_t{1} << 47), "down", 1);
                });
              units.add("loss",
                        [](FloatBuilder& b, Value x) { return b.cross_entropy(x, "output", 2); });
              Chain<float>(units, {1, 8});
            }),
            "unit wide.0 is too large; expected at most 1125899906842624 bytes in all units");
}

/// The error of a chain of doubles whose unit in the middle has this operation.
std::string error_of_check(const std::function<void(Operation<double>&)>& change) {
  ostrakon::Units<double> units;
  units.add("source", [](Builder<double>& b) { return b.floats(small_width); });
  units.add("strange", [&](Builder<double>& b, Value x) {
    Operation<double> own = bend<double>(x, {});
    change(own);
    return b.apply(own);
  });
  units.add("squares", [](Builder<double>& b, Value x) { return b.losses(squares<double>(x)); });
  const Chain<double> chain(units, {small_rows, 4 * small_width});
  SmallSamples samples;
  return testing::error_of([&] { check_gradients(chain, samples); });
}

TEST(Chain, NamesUnitAndCallOfWhatAKernelThrows) {
  EXPECT_EQ(error_of_check([](Operation<double>& own) {
              own.forward = [](const OperationForward<double>& call) {
                call.batch.array<float>(0, small_all);
              };
            }),
            "unit strange, forward: 10 elements of 4 bytes from byte 0 on of its batch "
            "(reads_batch is false), which has 0 bytes");
  EXPECT_EQ(error_of_check([](Operation<double>& own) {
              own.backward = [](const OperationBackward<double>&) { throw Error("no table"); };
            }),
            "unit strange, backward: no table");
}

TEST(BatchBytes, RefuseArraysBeyondThem) {
  alignas(64) const std::byte memory[64] = {};
  const model::BatchBytes bytes({memory, 64});
  EXPECT_EQ(bytes.array<float>(16, 12).size(), 12);
  EXPECT_EQ(testing::error_of([&] { bytes.array<float>(16, 13); }),
            "13 elements of 4 bytes from byte 16 on of its batch, which has 64 bytes");
  EXPECT_NE(testing::error_of([&] { bytes.array<double>(4, 1); }), "no error");
  EXPECT_NE(testing::error_of([&] { bytes.array<float>(68, 0); }), "no error");
  EXPECT_NE(testing::error_of([&] { bytes.array<float>(0, -1); }), "no error");
}

}  // namespace
}  // namespace ostrakon::tests
