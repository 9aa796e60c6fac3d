// SPDX-License-Identifier: Apache-2.0
// The gradient check passes right units, and names wrong ones.

#include <gtest/gtest.h>

#include <algorithm>

#include "model/small_chain.hpp"
#include "support/scratch_folder.hpp"

namespace ostrakon::tests {
namespace {

/// Checks a small chain whose bend.1 is of this kind, with this fault.
template <class T>
GradientReport check(Fault fault, BendKind kind = {}) {
  kind.fault = fault;
  SmallSamples samples;
  return check_gradients(small_chain<T>({}, kind, fault), samples);
}

TEST(GradientCheck, PassesRightUnits) {
  for (const bool is_frozen : {false, true}) {
    BendKind kind;
    kind.is_frozen = is_frozen;
    const GradientReport report = check<double>(Fault::none, kind);
    EXPECT_TRUE(report.passed()) << report.text();
    // Three inputs; scale and shift of two units; the target.
    EXPECT_EQ(report.compared, 3 * small_all + (is_frozen ? 4 : 5) * small_width);
    const GradientReport in_float = check<float>(Fault::none, kind);
    EXPECT_TRUE(in_float.passed()) << in_float.text();
  }
}

TEST(GradientCheck, ComparesGradientsOfTiedParameters) {
  SmallTokens samples;
  const GradientReport report = check_gradients(tied_chain<double>(), samples, {1, 0});
  EXPECT_TRUE(report.passed()) << report.text();
  constexpr std::int64_t rows = small_rows * small_tokens;
  EXPECT_EQ(report.compared,
            2 * rows * small_width + 2 * small_words * small_width + 2 * small_width);
}

struct Found {
  Fault fault;
  const char* array;
  const char* words;
};

template <class T>
void expect_found(const Found& expected, const BendKind& kind = {},
                  const std::string& unit = "bend.1") {
  const GradientReport report = check<T>(expected.fault, kind);
  ASSERT_FALSE(report.problems.empty()) << expected.words;
  const GradientProblem& first = report.problems.front();
  EXPECT_EQ(first.array, expected.array) << first.text;
  EXPECT_HAS(first.text, expected.words);
  EXPECT_HAS(report.text(), first.text);
  // Units before and after are right.
  for (const GradientProblem& problem : report.problems) EXPECT_EQ(problem.unit, unit);
}

TEST(GradientCheck, NamesWhatIsWrong) {
  const Found all[] = {
      {Fault::wrong_gradient, "scale", "from differences (5 of 5 compared differ)"},
      {Fault::wrong_input_gradient, "input", "from differences (10 of 10 compared differ)"},
      {Fault::reads_what_it_does_not_say, "input", "unit bend.1: input[0]: is not finite"},
      {Fault::mixes_rows, "bend", "forward of rows 0 to 0 left "},
      {Fault::mixes_columns, "bend", "forward of columns 0 to 1 left "},
      {Fault::unwritten_output, "bend", "unit bend.1: bend: forward left its output[3] unwritten"},
      {Fault::unwritten_gradient, "bend", "backward left its parameter_gradients[0][0] unwritten"},
      {Fault::writes_outside, "bend", "unit bend.1: bend: forward wrote outside of its output"},
      {Fault::writes_to_input, "bend", "forward wrote to its inputs[0]"},
      {Fault::reads_after_parameter, "output", "unit bend.1: output[0]: is not finite"},
      {Fault::writes_after_gradient, "bend", "wrote outside of its parameter_gradients[0]"},
      {Fault::writes_losses, "bend", "forward wrote outside of its losses, which is empty"},
      {Fault::forward_varies, "bend", "forward, called twice alike, left "},
      {Fault::backward_varies, "bend", "backward, called twice alike, left "}};
  for (const Found& expected : all) {
    expect_found<double>(expected);
    expect_found<float>(expected);
  }
  BendKind frozen;
  frozen.is_frozen = true;
  expect_found<double>({Fault::writes_frozen_gradient, "bend",
                        "backward wrote outside of its parameter_gradients[1], which is empty"},
                       frozen);
  for (const Found& expected :
       {Found{Fault::ignores_loss_scale, "input", "unit squares: input["},
        Found{Fault::writes_output, "squares", "wrote outside of its output, which is empty"}}) {
    expect_found<double>(expected, {}, "squares");
    expect_found<float>(expected, {}, "squares");
  }
}

TEST(GradientCheck, TellsBothValues) {
  const GradientReport report = check<double>(Fault::wrong_gradient);
  ASSERT_EQ(report.problems.size(), 1u) << report.text();
  const GradientProblem& problem = report.problems.front();
  EXPECT_GE(problem.element, 0);
  EXPECT_NEAR(problem.backward, -problem.difference, 1e-6 * std::abs(problem.difference));
}

TEST(GradientCheck, SaysWhereFloatIsTooCoarse) {
  BendKind far;
  far.offset = 1e4;
  for (const Fault fault : {Fault::none, Fault::wrong_gradient}) {
    const GradientReport report = check<float>(fault, far);
    const auto is_of_scale = [](const GradientProblem& problem) {
      return problem.unit == "bend.1" && problem.array == "scale";
    };
    const auto found = std::find_if(report.problems.begin(), report.problems.end(), is_of_scale);
    ASSERT_NE(found, report.problems.end()) << report.text();
    EXPECT_HAS(found->text, " are too small to compare in float; check Chain<double>");
    EXPECT_EQ(check<double>(fault, far).passed(), fault == Fault::none);
  }
}

TEST(GradientCheck, DoesNotCountWhatIsTooSmallToCompare) {
  BendKind faint;
  faint.size = 1e-12;
  faint.offset = 1.0;
  const GradientReport report = check<double>(Fault::none, faint);
  EXPECT_TRUE(report.passed()) << report.text();
  EXPECT_EQ(report.too_small, small_all + 2 * small_width);
  EXPECT_EQ(report.compared, 2 * small_all + 3 * small_width);
  EXPECT_HAS(report.text(), "; 20 are too small to compare");
}

TEST(GradientCheck, ComputesOnOneRank) {
  ostrakon::Units<double> units;
  units.add("source", [](Builder<double>& b) { return b.floats(4); });
  units.add("loss", [](Builder<double>& b, Value x) {
    return b.cross_entropy(b.norm(x, "norm"), "output", 2);
  });
  const Chain<double> chain(units, {small_rows, SmallSamples().sample_bytes(), 1, 2});
  SmallSamples samples;
  EXPECT_EQ(testing::error_of([&] { check_gradients(chain, samples); }),
            "the chain is for 2 tensor ranks; a check of gradients computes on one");
}

}  // namespace
}  // namespace ostrakon::tests
