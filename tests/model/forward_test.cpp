// SPDX-License-Identifier: Apache-2.0
// Forward and decoding in all types, against plain loops in double with the same parameters.
#include <gtest/gtest.h>

#include "model/reference_run.hpp"

namespace ostrakon::test {
namespace {

struct Tolerances {
  double results, decoded, logits;
};

/// Outputs of the embedding and of units of blocks, which the reference has of each block.
template <class T>
void expect_agrees(const ModelCase& which, double tolerance) {
  ModelRun<T> run(which);
  run.forward();
  run.expect_guards_intact();
  const reference::Result<double> expected = run_reference(run);
  std::size_t computed = 0;
  std::string owner;
  for (int u = 0; u < run.head(); ++u) {
    for (const model::Parameter& p : run.decoder.unit(u).parameters())
      if (std::exchange(owner, p.owner) != p.owner) ++computed;
    // A module hands on its input in front of its output.
    const std::vector<T> output = run.outputs[u].values();
    const std::vector<double>& hidden = expected.hidden[computed - 1];
    EXPECT_LE(
        relative_distance(
            std::vector<T>(output.end() - static_cast<std::ptrdiff_t>(hidden.size()), output.end()),
            hidden),
        tolerance)
        << "output of " << run.description.units[u].name;
  }
  EXPECT_EQ(computed, expected.hidden.size());
  EXPECT_LE(relative_distance(run.losses(), expected.losses), tolerance);
  if (!expected.further.empty()) {
    EXPECT_LE(relative_distance(run.further_losses(), expected.further), tolerance);
  }
}

/// A prompt, then token by token; and all of them at once. Products of other shapes add in another
/// order, so the results of some rows are rounded to the neighbour of what they were.
template <class T>
void expect_decoding_agrees(ModelCase which, const Tolerances& tolerances) {
  which.leaf = {1, 13};
  which.settings.multi_token_depth = 0;
  ModelRun<T> whole(which);
  whole.forward();
  const auto decoded = decoded_outputs(which, whole);
  // From latents other numbers are rounded.
  const double tolerance = which.settings.latent.exist() ? tolerances.results : tolerances.decoded;
  for (int u = 0; u < whole.head(); ++u)
    EXPECT_LE(relative_distance(decoded[u], whole.outputs[u].values()), tolerance)
        << whole.description.units[u].name;

  ModelRun<T> at_once(decoded_at_once(which));
  at_once.forward();
  at_once.expect_guards_intact();
  const std::vector<double> all = run_reference(at_once).logits;
  EXPECT_LE(
      relative_distance(at_once.head_output(),
                        std::vector<double>(all.end() - which.settings.vocabulary, all.end())),
      tolerances.logits);
}

template <class T>
void expect_all_agree(const Tolerances& tolerances) {
  for (const ModelCase& which : model_cases()) {
    SCOPED_TRACE(which.name);
    // Rounded to 16 bits, the scores of two experts may change places.
    if (sizeof(T) > 2 || !which.settings.experts.exist())
      expect_agrees<T>(which, tolerances.results);
    expect_decoding_agrees<T>(which, tolerances);
  }
  for (const ModelCase& which : long_cases()) {
    SCOPED_TRACE(which.name);
    expect_agrees<T>(which, tolerances.results);
  }
}

TEST(Forward, AgreesInFloat) { expect_all_agree<float>({1e-6, 1e-6, 1e-6}); }
TEST(Forward, AgreesInDouble) { expect_all_agree<double>({1e-14, 1e-14, 1e-14}); }
TEST(Forward, AgreesInBf16) { expect_all_agree<bf16>({0.02, 0x1p-8, 0.04}); }
TEST(Forward, AgreesInFp16) { expect_all_agree<fp16>({0.0025, 0x1p-11, 0.006}); }

}  // namespace
}  // namespace ostrakon::test
