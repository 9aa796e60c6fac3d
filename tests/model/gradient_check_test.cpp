// SPDX-License-Identifier: Apache-2.0
// The gradient check passes right units, and names wrong ones.

#include <gtest/gtest.h>

#include <algorithm>

#include "model/small_chain.hpp"

namespace ostrakon::tests {
namespace {

/// Of bend.1, or of bend.0, with this fault; none of its other units.
template <class T>
GradientReport check(Fault fault, bool of_first = false, BendKind kind = {}) {
  kind.fault = fault;
  SmallSamples samples;
  const BendKind right;
  return check_gradients(of_first ? small_chain<T>(kind, right) : small_chain<T>(right, kind),
                         samples);
}

TEST(GradientCheck, PassesUnitsOfAllKinds) {
  for (const bool has_phases : {false, true})
    for (const bool has_exchanges : {false, true})
      for (const bool is_frozen : {false, true}) {
        BendKind kind;
        kind.has_phases = has_phases;
        kind.has_exchanges = has_phases && has_exchanges;
        kind.is_frozen = is_frozen;
        for (const bool of_first : {false, true}) {
          const GradientReport report = check<double>(Fault::none, of_first, kind);
          EXPECT_TRUE(report.passed()) << report.text();
          // Four inputs; scale and shift of two units, of the first one again by the one that is
          // tied to it; the target.
          const int arrays = 7 - (is_frozen ? (of_first ? 2 : 1) : 0);
          EXPECT_EQ(report.compared, 4 * small_all + arrays * small_width);
          const GradientReport in_float = check<float>(Fault::none, of_first, kind);
          EXPECT_TRUE(in_float.passed()) << in_float.text();
        }
      }
}

struct Found {
  Fault fault;
  const char* array;
  const char* words;
};

TEST(GradientCheck, NamesWhatIsWrong) {
  const Found all[] = {
      {Fault::wrong_gradient, "scale", "from differences (5 of 5 compared differ)"},
      {Fault::wrong_input_gradient, "input", "from differences (10 of 10 compared differ)"},
      {Fault::unwritten_gradient, "scale", "unit bend.1: scale[4]: is not written"},
      {Fault::recomputes_otherwise, "saved", "this byte differs where forward recomputes"},
      {Fault::writes_outside, "", "unit bend.1: forward wrote outside of its saved"},
      {Fault::writes_to_input, "", "unit bend.1: forward wrote to its input"},
      {Fault::reads_after_parameter, "output", "unit bend.1: output[0]: is not finite"},
      {Fault::writes_after_gradient, "",
       "unit bend.1: backward wrote outside of its parameter gradients, after that of scale"},
      {Fault::unwritten_output, "output", "unit bend.1: output[3]: is not written"},
      {Fault::damages_output, "", "unit bend.1: forward wrote outside of its saved"},
      {Fault::forward_varies, "output", "forward, called twice alike, left "},
      {Fault::backward_varies, "parameter gradients", "backward, called twice alike, left "}};
  for (const Found& expected : all)
    for (const GradientReport& report :
         {check<double>(expected.fault), check<float>(expected.fault)}) {
      ASSERT_FALSE(report.problems.empty()) << expected.words;
      const GradientProblem& first = report.problems.front();
      EXPECT_EQ(first.unit, "bend.1");
      EXPECT_EQ(first.array, expected.array);
      EXPECT_NE(first.text.find(expected.words), std::string::npos) << first.text;
      // Units before and after are right.
      for (const GradientProblem& problem : report.problems) EXPECT_EQ(problem.unit, "bend.1");
      EXPECT_NE(report.text().find(first.text), std::string::npos);
    }
}

TEST(GradientCheck, TellsBothValues) {
  const GradientReport report = check<double>(Fault::wrong_gradient);
  ASSERT_EQ(report.problems.size(), 1u) << report.text();
  const GradientProblem& problem = report.problems.front();
  EXPECT_GE(problem.element, 0);
  EXPECT_NEAR(problem.backward, -problem.difference, 1e-6 * std::abs(problem.difference));
}

TEST(GradientCheck, FindsAUnitThatDoesNotAddToWhatATiedOneHasWritten) {
  const GradientReport report = check<double>(Fault::forgets_to_add, true);
  ASSERT_FALSE(report.passed());
  EXPECT_EQ(report.problems.front().unit, "bend.0");
  EXPECT_NE(report.problems.front().text.find("with adds_gradients"), std::string::npos);
  // Nothing is tied to the other one.
  EXPECT_TRUE(check<double>(Fault::forgets_to_add, false).passed());
}

TEST(GradientCheck, FindsAUnitThatAddsNothingToLargerGradients) {
  BendKind small;
  small.size = 1e-3;
  EXPECT_TRUE(check<double>(Fault::none, true, small).passed());
  // Of the next one, which has the small output for input, some are too small in float.
  for (const GradientProblem& problem : check<float>(Fault::none, true, small).problems)
    EXPECT_EQ(problem.unit, "bend.1") << problem.text;
  for (const GradientReport& report : {check<double>(Fault::leaves_out_adding, true, small),
                                       check<float>(Fault::leaves_out_adding, true, small)}) {
    ASSERT_FALSE(report.passed());
    EXPECT_EQ(report.problems.front().unit, "bend.0");
    EXPECT_LT(std::abs(report.problems.front().difference), 0.01);
    EXPECT_NE(report.problems.front().text.find("with adds_gradients"), std::string::npos);
  }
}

TEST(GradientCheck, TellsOfOneFaultOfAUnitThatRecomputesOtherwise) {
  for (const GradientReport& report :
       {check<double>(Fault::recomputes_otherwise), check<float>(Fault::recomputes_otherwise)})
    EXPECT_EQ(report.problems.size(), 1u) << report.text();
}

TEST(GradientCheck, SaysWhereFloatIsTooCoarse) {
  BendKind far;
  far.offset = 1e4;
  for (const Fault fault : {Fault::none, Fault::wrong_gradient}) {
    const GradientReport report = check<float>(fault, false, far);
    const auto is_of_scale = [](const GradientProblem& problem) {
      return problem.unit == "bend.1" && problem.array == "scale";
    };
    const auto found = std::find_if(report.problems.begin(), report.problems.end(), is_of_scale);
    ASSERT_NE(found, report.problems.end()) << report.text();
    EXPECT_NE(found->text.find(" are too small to compare in float; check Chain<double>"),
              std::string::npos)
        << found->text;
    EXPECT_EQ(check<double>(fault, false, far).passed(), fault == Fault::none);
  }
}

TEST(GradientCheck, DoesNotCountWhatIsTooSmallToCompare) {
  BendKind faint;
  faint.size = 1e-12;
  faint.offset = 1.0;
  const GradientReport report = check<double>(Fault::none, false, faint);
  EXPECT_TRUE(report.passed()) << report.text();
  EXPECT_EQ(report.too_small, small_all + 2 * small_width);
  EXPECT_EQ(report.compared, 3 * small_all + 5 * small_width);
  EXPECT_NE(report.text().find("; 20 are too small to compare"), std::string::npos);
}

TEST(GradientCheck, FindsFaultsOfTiedAndLossUnits) {
  SmallSamples samples;
  const Found all[] = {
      {Fault::writes_after_tied_gradient, "",
       "unit tied: backward wrote outside of its tied gradients, after that of scale"},
      {Fault::ignores_loss_scale, "input", "unit squares: input["}};
  for (const Found& expected : all)
    for (const GradientReport& report :
         {check_gradients(small_chain<double>({}, {}, expected.fault), samples),
          check_gradients(small_chain<float>({}, {}, expected.fault), samples)}) {
      ASSERT_FALSE(report.problems.empty()) << expected.words;
      EXPECT_EQ(report.problems.front().array, expected.array);
      EXPECT_NE(report.text().find(expected.words), std::string::npos) << report.text();
    }
}

// With a plain null array such a write would end the program in a build without checks of views.
TEST(GradientCheck, FindsWritesToArraysThatACallDoesNotHave) {
  BendKind frozen, in_phases;
  frozen.is_frozen = true;
  in_phases.has_phases = true;
  const auto of_other = [](Fault fault, const BendKind& first) {
    SmallSamples samples;
    return check_gradients(small_chain<double>(first, {}, fault), samples);
  };
  const auto expect = [](const GradientReport& report, const char* words) {
    ASSERT_EQ(report.problems.size(), 1u) << report.text();
    EXPECT_EQ(report.text(), words);
  };
  expect(check<double>(Fault::writes_absent_output),
         "unit bend.1: forward that recomputes wrote to its output, which is empty in a call that "
         "recomputes");
  expect(check<double>(Fault::writes_absent_output, false, in_phases),
         "unit bend.1: forward wrote to its output, which is empty before the last phase "
         "and without Phase::writes_output");
  expect(check<float>(Fault::writes_losses),
         "unit bend.1: forward wrote to its losses, which only the loss unit has: expected output");
  expect(of_other(Fault::writes_loss_output, {}),
         "unit squares: forward wrote to its output, which is empty in the loss unit: expected "
         "losses");
  for (const GradientReport& report : {check<double>(Fault::writes_frozen_gradient, false, frozen),
                                       check<float>(Fault::writes_frozen_gradient, false, frozen)})
    expect(report,
           "unit bend.1: backward wrote to the gradient of shift, which is frozen: the array is "
           "empty");
  expect(of_other(Fault::writes_frozen_tied_gradient, frozen),
         "unit tied: backward wrote to the tied gradient of shift, which is frozen: the array is "
         "empty");
}

TEST(GradientCheck, TellsOnceOfAGradientThatIsNotWrittenWhereAUnitIsTied) {
  for (const GradientReport& report : {check<double>(Fault::unwritten_gradient, true),
                                       check<float>(Fault::unwritten_gradient, true)})
    EXPECT_EQ(report.text(),
              "unit bend.0: scale[4]: is not written\nunit bend.0: shift[4]: is not written");
}

// The example of tied and frozen parameters in docs/own-models.md.
constexpr std::int64_t columns = small_width, all = small_all;

template <class T>
class Encode final : public Unit<T> {
 public:
  UnitDescription describe() const override {
    UnitDescription unit;
    unit.name = "encode";
    unit.input = unit.output = all;
    unit.parameters = {Parameter::normal("scale", {columns}, 0.5),
                       Parameter::zeros("shift", {columns})};
    unit.parameters[0].frozen = true;
    return unit;
  }
  void forward(const ForwardCall<T>& call) const override {
    const auto x = call.input, a = call.parameters(0), b = call.parameters(1);
    const auto y = call.output;
    for_each(
        call.exec, all,
        KOKKOS_LAMBDA(std::int64_t i) { y(i) = T(a(i % columns) * x(i) + b(i % columns)); });
  }
  void backward(const BackwardCall<T>& call) const override {
    const auto g = call.gradient;
    const auto a = call.parameters(0);
    const auto db = call.parameter_gradients(1);
    const bool adds = call.adds_gradients;
    for_each(
        call.exec, columns, KOKKOS_LAMBDA(std::int64_t j) {
          compute_t<T> sum = 0;
          for (std::int64_t i = j; i < all; i += columns) {
            sum += g(i);
            g(i) = T(g(i) * a(j));
          }
          db(j) = (adds ? db(j) : 0) + sum;
        });
  }
};

template <class T>
class Decode final : public Unit<T> {
 public:
  UnitDescription describe() const override {
    UnitDescription unit;
    unit.name = "decode";
    unit.input = unit.output = all;
    unit.tied_to = "encode";
    return unit;
  }
  void forward(const ForwardCall<T>& call) const override {
    const auto x = call.input, a = call.tied_parameters(0), b = call.tied_parameters(1);
    const auto y = call.output;
    for_each(
        call.exec, all,
        KOKKOS_LAMBDA(std::int64_t i) { y(i) = T(a(i % columns) * (x(i) - b(i % columns))); });
  }
  void backward(const BackwardCall<T>& call) const override {
    const auto g = call.gradient;
    const auto a = call.tied_parameters(0);
    const auto db = call.tied_gradients(1);
    for_each(
        call.exec, columns, KOKKOS_LAMBDA(std::int64_t j) {
          compute_t<T> sum = 0;
          for (std::int64_t i = j; i < all; i += columns) {
            g(i) = T(g(i) * a(j));
            sum -= g(i);
          }
          db(j) = sum;
        });
  }
};

TEST(GradientCheck, PassesTheExampleOfTiedAndFrozenParameters) {
  Units<double> units;
  units.push_back(std::make_unique<Source<double>>());
  units.push_back(std::make_unique<Encode<double>>());
  units.push_back(std::make_unique<Decode<double>>());
  units.push_back(std::make_unique<Squares<double>>(Fault::none));
  SmallSamples samples;
  const Chain<double> chain(std::move(units), {small_rows, samples.sample_bytes()});
  const GradientReport report = check_gradients(chain, samples);
  EXPECT_TRUE(report.passed()) << report.text();
  EXPECT_EQ(report.compared, 3 * all + 3 * columns);
}

/// y = a x + b x^2, by columns, in phases that overlap with exchanges: both are read by the last
/// two, in either order, each of which writes a part of the output. x^2 goes from phase 0 to 1 in a
/// workspace, and is saved by 1. `forgets`: says that 1 need not be computed again.
template <class T>
class Parabola final : public Unit<T> {
 public:
  explicit Parabola(bool forgets = false) : forgets_(forgets) {}

  UnitDescription describe() const override {
    UnitDescription unit;
    unit.name = "parabola";
    unit.parameters = {Parameter::normal("a", {small_width}, 0.5),
                       Parameter::normal("b", {small_width}, 0.5)};
    unit.input = unit.output = small_all;
    unit.saved_bytes = small_all * static_cast<std::int64_t>(sizeof(T));
    unit.forward.resize(4);
    unit.forward[0].workspace_bytes = unit.saved_bytes;
    unit.forward[0].keeps_workspace = true;
    for (int phase : {0, 1})
      unit.forward[static_cast<std::size_t>(phase)].then =
          plan::Exchange{plan::ExchangeKind::gather, {plan::Axis::shard, 1}, small_all, sizeof(T)};
    unit.forward[1].recomputes = !forgets_;
    unit.forward[2].reads = {0, 1};
    unit.forward[3].reads = {1, 0};
    unit.forward[2].writes_output = true;
    unit.forward[2].recomputes = unit.forward[3].recomputes = false;
    return unit;
  }
  void forward(const ForwardCall<T>& call) const override {
    const auto x = call.input, a = call.parameters(0), b = call.parameters(1);
    const auto saved = call.saved.template array<T>(0, small_all);
    if (call.phase < 2) {
      const bool is_first = call.phase == 0, hands = call.handed.size() > 0;
      const auto handed = hands ? call.handed.template array<T>(0, small_all) : saved;
      const auto square = call.workspace.template array<T>(0, small_all);
      for_each(
          call.exec, small_all, KOKKOS_LAMBDA(std::int64_t i) {
            if (is_first) square(i) = T(x(i) * x(i));
            if (!is_first) saved(i) = square(i);
            if (hands)
              handed(i) = T(is_first ? a(i % small_width) * x(i) : b(i % small_width) * square(i));
          });
      return;
    }
    const auto one = call.exchanged.template array<T>(0, small_all),
               other = call.second_exchanged.template array<T>(0, small_all);
    const auto y = call.output;
    const std::int64_t half = small_all / 2, first = call.phase == 2 ? 0 : half;
    for_each(
        call.exec, call.phase == 2 ? half : small_all - half,
        KOKKOS_LAMBDA(std::int64_t i) { y(first + i) = T(one(first + i) + other(first + i)); });
  }
  void backward(const BackwardCall<T>& call) const override {
    const auto x = call.input, a = call.parameters(0), b = call.parameters(1);
    const auto square = call.saved.template array<T>(0, small_all);
    const auto g = call.gradient;
    const auto da = call.parameter_gradients(0), db = call.parameter_gradients(1);
    for_each(
        call.exec, small_width, KOKKOS_LAMBDA(std::int64_t j) {
          compute_t<T> of_a = 0, of_b = 0;
          for (std::int64_t i = j; i < small_all; i += small_width) {
            of_a += g(i) * x(i);
            of_b += g(i) * square(i);
            g(i) = T(g(i) * (a(j) + 2 * b(j) * x(i)));
          }
          da(j) = of_a;
          db(j) = of_b;
        });
  }

 private:
  bool forgets_;
};

template <class T>
GradientReport check_parabola(bool forgets) {
  Units<T> units;
  units.push_back(std::make_unique<Source<T>>());
  units.push_back(std::make_unique<Parabola<T>>(forgets));
  units.push_back(std::make_unique<Squares<T>>(Fault::none));
  SmallSamples samples;
  return check_gradients(Chain<T>(std::move(units), {small_rows, samples.sample_bytes()}), samples);
}

TEST(GradientCheck, PassesPhasesThatOverlapWithExchanges) {
  const GradientReport report = check_parabola<double>(false);
  EXPECT_TRUE(report.passed()) << report.text();
  EXPECT_EQ(report.compared, 2 * small_all + 3 * small_width);
  const GradientReport in_float = check_parabola<float>(false);
  EXPECT_TRUE(in_float.passed()) << in_float.text();
}

TEST(GradientCheck, ComputesAgainThePhasesThatTrainingDoes) {
  const GradientReport report = check_parabola<double>(true);
  EXPECT_NE(report.text().find("this byte differs where forward recomputes"), std::string::npos)
      << report.text();
}

TEST(GradientCheck, ComputesOnOneRank) {
  BendKind kind;
  kind.has_phases = kind.has_exchanges = true;
  kind.exchange_ranks = 2;
  EXPECT_THROW(check<double>(Fault::none, false, kind), Error);
}

}  // namespace
}  // namespace ostrakon::tests
