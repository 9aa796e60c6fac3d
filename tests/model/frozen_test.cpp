// SPDX-License-Identifier: Apache-2.0
// Freezing parameters changes where they are and what is skipped; see bits_test.cpp for the rest.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ostrakon/model/array_packer.hpp>
#include <ostrakon/model/decoder.hpp>
#include <ostrakon/model/graph/program.hpp>

#include "model/freezes.hpp"
#include "model/model_run.hpp"
#include "support/trials.hpp"

namespace ostrakon::test {
namespace {

using model::Recompute;

/// Arrays begin at multiples of these bytes, so that fewer arrays can take more by one of them.
constexpr std::int64_t gap = model::graph::array_alignment * std::int64_t{sizeof(float)};

/// body(case, freezes of it): a third of all pairs, in which each model and each freeze is; all of
/// them where no case may be left out.
template <class Body>
void for_each_case(const Body& body) {
  const std::vector<ModelCase> cases = model_cases();
  const std::vector<Freeze> all = freezes();
  const auto step = static_cast<std::size_t>(tests::every_nth(3));
  for (std::size_t c = 0; c < cases.size(); ++c) {
    std::vector<Freeze> some;
    for (std::size_t f = c % step; f < all.size(); f += step) some.push_back(all[f]);
    body(cases[c], some);
  }
}

TEST(Frozen, ParametersLieInASegmentOfTheirOwn) {
  for_each_case([](const ModelCase& which, const std::vector<Freeze>& some) {
    const model::Decoder<float> plain(which.settings, which.leaf);
    for (const Freeze& freeze : some) {
      SCOPED_TRACE(which.name + ", " + freeze.name);
      const model::Decoder<float> decoder(which.settings, which.leaf, {}, freeze.frozen);
      EXPECT_EQ(decoder.parameter_count(), plain.parameter_count());
      for (int u = 0; u < decoder.units(); ++u) {
        const plan::UnitDescription& unit = decoder.unit(u).description();
        const auto& expected = plain.unit(u).parameters();
        ASSERT_EQ(decoder.unit(u).parameters().size(), expected.size());
        std::int64_t trained_end = 0, frozen_end = 0;
        for (std::size_t i = 0; i < expected.size(); ++i) {
          const model::Parameter& p = decoder.unit(u).parameters()[i];
          EXPECT_EQ(p.full_name(), expected[i].full_name());
          EXPECT_FALSE(expected[i].frozen);
          EXPECT_EQ(p.frozen, freeze.frozen(p.full_name())) << p.full_name();
          std::int64_t& end = p.frozen ? frozen_end : trained_end;
          EXPECT_EQ(p.offset, end) << p.full_name();
          end = model::round_up(end + p.elements(), model::parameter_alignment);
        }
        EXPECT_EQ(unit.frozen_elements, frozen_end) << unit.name;
        EXPECT_EQ(unit.parameter_elements, frozen_end + trained_end) << unit.name;
        EXPECT_EQ(unit.parameter_elements, plain.unit(u).description().parameter_elements);
        EXPECT_EQ(plain.unit(u).description().frozen_elements, 0);
      }
    }
  });
}

/// Where gradients of parameters are deferred, what only frozen ones need is not kept, and a block
/// none of whose matrices is trained defers nothing.
TEST(Frozen, BlocksDeferNothingForWhatIsFrozen) {
  for_each_case([](ModelCase which, const std::vector<Freeze>& some) {
    which.leaf.defers_gradients = true;
    const model::Decoder<float> all(which.settings, which.leaf);
    for (const Freeze& freeze : some) {
      const model::Decoder<float> decoder(which.settings, which.leaf, {}, freeze.frozen);
      for (int u = 0; u < decoder.units(); ++u) {
        const plan::UnitDescription& unit = decoder.unit(u).description();
        const auto& parameters = decoder.unit(u).parameters();
        // A module's gradients of the embedding are not deferred, and so are none of its own.
        const bool is_block = u > 0 && u + 1 < decoder.units() && unit.tied_to < 0;
        const bool trains_matrices =
            std::any_of(parameters.begin(), parameters.end(),
                        [](const model::Parameter& p) { return !p.frozen && p.shape.size() == 2; });
        EXPECT_EQ(unit.deferral.phases, is_block && trains_matrices ? 1 : 0)
            << which.name << ", " << freeze.name << ": " << unit.name;
        EXPECT_LE(unit.deferral.bytes, all.unit(u).description().deferral.bytes + gap)
            << which.name << ", " << freeze.name << ": " << unit.name;
      }
    }
  });
}

/// All that deferred gradients need of a block's second matrices, unless these are frozen.
TEST(Frozen, SecondMatricesTakeNothingThatIsDeferred) {
  ModelCase which = model_cases()[0];
  which.leaf = {2, 64};
  which.leaf.defers_gradients = true;
  const auto deferred = [&](const std::vector<std::string>& patterns) {
    const model::Decoder<float> decoder(which.settings, which.leaf, {}, freezing(patterns).frozen);
    return decoder.unit(1).description().deferral.bytes;
  };
  const std::int64_t rows = 4 * 128, width = which.settings.width;
  EXPECT_EQ(deferred({}) - deferred({"*attention.out.*"}), rows * width);
  EXPECT_EQ(deferred({}) - deferred({"*mlp.down.*"}), rows * (width + which.settings.ffn_width));
  // Its bias has a gradient in backward, which waits: no product reads what that takes.
  EXPECT_EQ(deferred({}) - deferred({"*mlp.down.weight"}),
            rows * (width + which.settings.ffn_width) - 4 * model::round_up(width, 64));
}

/// Where the token table is trained, a tied head opens all gradients of the embedding that there
/// are, whatever else is frozen; where it is frozen, none.
TEST(Frozen, TiedHeadsOpenTheGradientsOfATrainedTable) {
  for_each_case([](const ModelCase& which, const std::vector<Freeze>& some) {
    for (const Freeze& freeze : some) {
      SCOPED_TRACE(which.name + ", " + freeze.name);
      ModelRun<float> run(which, {}, freeze.frozen);
      const bool tied = which.settings.tie_embeddings;
      const bool frozen_table = freeze.frozen("embedding.token.weight");
      EXPECT_EQ(run.description.units.back().tied_to, tied ? 0 : -1);
      EXPECT_EQ(run.description.units.back().tied_gradients, !tied || !frozen_table);
      run.forward();
      run.backward(run.head(), 1.0f, false);
      const std::vector<float> opened = run.gradients[0].values();
      const auto written = std::count_if(opened.begin(), opened.end(),
                                         [](float value) { return !std::isnan(value); });
      EXPECT_EQ(written, tied && !frozen_table ? run.gradients[0].size() : 0);
    }
  });
}

/// Rows that a parameter's layer is described with: an expert's share of all copies, those of each
/// token that a head predicts, else all.
std::int64_t rows_of(const ModelCase& which, const std::string& name) {
  const std::string prefix = "mlp.experts.";
  if (name == "output.weight") return (1 + which.settings.multi_token_depth) * which.leaf.rows();
  if (name.compare(0, prefix.size(), prefix) != 0) return which.leaf.rows();
  const model::ExpertSettings& experts = which.settings.experts;
  const std::int64_t expert = std::stoll(name.substr(prefix.size()));
  const std::int64_t copies = which.leaf.rows() * experts.per_token;
  return (expert + 1) * copies / experts.count - expert * copies / experts.count;
}

TEST(Frozen, DescriptionsCountWhatIsLeftOut) {
  for_each_case([](const ModelCase& which, const std::vector<Freeze>& some) {
    for (const Recompute& recompute : {Recompute{}, Recompute{true, true, true}}) {
      const model::Decoder<bf16> plain(which.settings, which.leaf, recompute);
      for (const Freeze& freeze : some) {
        const model::Decoder<bf16> decoder(which.settings, which.leaf, recompute, freeze.frozen);
        EXPECT_EQ(decoder.description().gradient_bytes, plain.description().gradient_bytes);
        // A product for each weight; the embedding has none, but for a tied head's.
        std::vector<double> left_out(decoder.units(), 0.0);
        std::vector<std::int64_t> frozen(decoder.units(), 0);
        for (int u = 0; u < decoder.units(); ++u)
          for (const model::Parameter& p : decoder.unit(u).parameters()) {
            frozen[u] += p.frozen ? p.elements() : 0;
            // Of a convolution sums over rows are a pass, no product.
            const bool is_convolution = p.name == "delta_net.convolution.weight";
            if (!p.frozen || p.shape.size() != 2 || is_convolution) continue;
            const bool is_tied = p.name == "token.weight" && which.settings.tie_embeddings;
            if (u > 0 || is_tied)
              left_out[is_tied ? decoder.units() - 1 : u] +=
                  2.0 * static_cast<double>(rows_of(which, p.name) * p.elements());
          }
        const plan::ModelDescription of_model = decoder.description();
        std::int64_t parameters = 0;
        for (const plan::UnitDescription& unit : of_model.units)
          parameters += unit.parameter_elements - unit.alignment_elements;
        EXPECT_EQ(parameters, decoder.parameter_count()) << which.name;
        for (int u = 0; u < decoder.units(); ++u) {
          const plan::UnitDescription& found = of_model.units[u];
          const plan::UnitDescription& expected = plain.unit(u).description();
          SCOPED_TRACE(which.name + ", " + freeze.name + ": " + found.name);
          EXPECT_EQ(found.backward.front().flops, expected.backward.front().flops - left_out[u]);
          EXPECT_EQ(found.gradient_flops, 2.0 * expected.forward.front().flops - left_out[u]);
          EXPECT_EQ(found.frozen_count, frozen[u]);
          EXPECT_EQ(found.forward.front().flops, expected.forward.front().flops);
          EXPECT_EQ(found.forward.front().recompute_flops,
                    expected.forward.front().recompute_flops);
          EXPECT_EQ(found.saved_bytes, expected.saved_bytes);
          EXPECT_EQ(found.output_bytes, expected.output_bytes);
          EXPECT_EQ(found.forward.front().workspace_bytes,
                    expected.forward.front().workspace_bytes);
          // With a delta net's many arrays less than all of them may be packed a little worse.
          const std::int64_t all = expected.backward.front().workspace_bytes;
          EXPECT_LE(found.backward.front().workspace_bytes,
                    all + (which.settings.has_delta_nets() ? all / 100 : gap));
          // The first unit has no gradient of an input: less that is trained may read no weights.
          EXPECT_LE(found.backward_reads_parameters, expected.backward_reads_parameters);
          if (u > 0) {
            EXPECT_EQ(found.backward_reads_parameters, expected.backward_reads_parameters);
          }
          EXPECT_EQ(found.tied_to, expected.tied_to);
        }
      }
    }
  });
}

}  // namespace
}  // namespace ostrakon::test
