// SPDX-License-Identifier: Apache-2.0
// Units that a Builder describes: gradients of every operation, whole and in tensor pieces, values
// by plain loops, and what is refused.

#include <gtest/gtest.h>

#include <cmath>
#include <ostrakon/gradient_check.hpp>

#include "model/small_units.hpp"
#include "support/scratch_folder.hpp"

namespace ostrakon::tests {
namespace {

constexpr std::int64_t in_pieces[] = {1, 2, 4};

/// Makes a chain of records, a unit of this function, and the misfit.
template <class T, class F>
Chain<T> built_chain(const F& function, std::int64_t pieces = 1) {
  ostrakon::Units<T> units;
  units.add("records", [](Builder<T>& b) { return b.floats(built_width); });
  units.add("unit", function);
  units.add("misfit", [](Builder<T>& b, Value x) { return b.losses(misfit<T>(x)); });
  return {std::move(units), built_leaf(1, pieces)};
}

template <class F>
void expect_right(const char* what, const F& function) {
  for (const std::int64_t pieces : in_pieces) {
    BuiltSamples samples;
    const auto chain = built_chain<double>(function, pieces);
    const GradientReport report = check_gradients(chain, samples);
    EXPECT_TRUE(report.passed()) << what << ", " << pieces << " pieces: " << report.text();
    EXPECT_GT(report.compared, 20) << what;
  }
}

using B = Builder<double>;

TEST(Builder, GradientsOfEachOperationAreRight) {
  expect_right("linear", [](B& b, Value x) { return b.linear(b.linear(x, "up", 12), "down", 16); });
  expect_right("linear without bias", [](B& b, Value x) {
    return b.linear(b.linear(x, "up", 12, {0.3, false}), "down", 16, {0.3, false});
  });
  expect_right("linear onto", [](B& b, Value x) {
    return b.linear_onto(x, b.gelu(b.linear(x, "up", 12)), "down");
  });
  expect_right("gated",
               [](B& b, Value x) { return b.linear_onto(x, b.gated_linear(x, "up", 12), "down"); });
  for (const NormKind kind : {NormKind::layernorm, NormKind::rmsnorm})
    for (const NormWeight weight : {NormWeight::plain, NormWeight::one_plus, NormWeight::none})
      expect_right("norm", [=](B& b, Value x) {
        return b.add(x, b.linear(b.linear(b.norm(x, "norm", {kind, true, 1e-5, weight}), "up", 8),
                                 "down", 16));
      });
  expect_right("attention", [](B& b, Value x) {
    return b.linear_onto(x, b.attention(x, "a", {4, 4, 0, {100.0}}, {0.5}), "out");
  });
  expect_right("attention with scores of its own", [](B& b, Value x) {
    AttentionSettings settings{4, 4};
    settings.scale = 0.8;
    settings.soft_cap = 1.5;
    settings.window = 3;
    settings.sinks = settings.alibi = true;
    return b.linear_onto(x, b.attention(x, "a", settings, {0.5}), "out");
  });
  for (const QueryKeyNorm kind :
       {QueryKeyNorm::head, QueryKeyNorm::each_head, QueryKeyNorm::whole, QueryKeyNorm::rotated})
    for (const NormKind norm : {NormKind::rmsnorm, NormKind::layernorm})
      for (const NormWeight weight : {NormWeight::plain, NormWeight::one_plus, NormWeight::none})
        if (kind != QueryKeyNorm::whole || norm == NormKind::rmsnorm)
          expect_right("attention with norms of queries and keys", [=](B& b, Value x) {
            const AttentionSettings settings = {4, 4, 0, {100.0, 0.5}, kind, norm, 1e-5, weight};
            return b.linear_onto(x, b.attention(x, "a", settings, {0.5}), "out");
          });
  expect_right("gated attention", [](B& b, Value x) {
    AttentionSettings settings{4, 4};
    settings.has_gate = true;
    return b.linear_onto(x, b.attention(x, "a", settings, {0.5}), "out");
  });
  expect_right("a gated delta net", [](B& b, Value x) {
    return b.linear_onto(x, b.delta_net(x, "d", {4, 8, 3, 4}, {0.5, false}), "out");
  });
  for (const auto& one : math::activation_names)
    expect_right(one.name, [activation = one.value](B& b, Value x) {
      return b.mlp_onto(x, b.norm(x, "norm"), "mlp", 12, {activation, {0.5}, {0.5}});
    });
  expect_right("add", [](B& b, Value x) {
    const Value up = b.linear(x, "up", 12), gated = b.gated_linear(x, "gated", 12);
    return b.add(x, b.linear(b.add(up, gated), "down", built_width));
  });
  expect_right("by element, of columns", [](B& b, Value x) {
    return b.linear(b.apply(scaled_tanh<double>(b.linear(x, "up", 12), 12)), "down", 16);
  });
  expect_right("by element, of rows",
               [](B& b, Value x) { return b.apply(scaled_tanh<double>(x, built_width)); });
  expect_right("by row", [](B& b, Value x) { return b.apply(mixed<double>(x)); });
}

TEST(Builder, GradientsOfValuesThatSeveralTakeAreSums) {
  expect_right("the input", [](B& b, Value x) {
    const Value n = b.norm(x, "norm"), t = b.apply(scaled_tanh<double>(x, built_width));
    return b.add(b.add(x, n), b.add(t, x));
  });
  expect_right("a layer onto its input", [](B& b, Value x) {
    const Value up = b.linear(x, "up", 16);
    return b.linear_onto(x, up, "down");
  });
}

TEST(Builder, AMixtureOfExpertsMayComeByItself) {
  BuiltSamples samples;
  const auto chain = built_chain<double>([](B& b, Value x) {
    ExpertSettings settings = {4, 2, 1, 8};
    settings.shared_gate = true;
    const Value made = b.mixture(x, "mixture", settings, {Activation::swiglu, {0.5}, {0.5}});
    return b.add(x, b.norm(made, "norm"));
  });
  const GradientReport report = check_gradients(chain, samples);
  EXPECT_TRUE(report.passed()) << report.text();
}

TEST(Builder, AMixtureOfExpertsIsOfOneTensorPiece) {
  const auto mixture = [](B& b, Value x) {
    const MlpSettings expert{Activation::swiglu, {0.5}, {0.5}};
    return b.mixture_onto(x, b.norm(x, "norm"), "mixture", {4, 2, 1, 8}, expert);
  };
  BuiltSamples samples;
  const auto chain = built_chain<double>(mixture);
  const GradientReport report = check_gradients(chain, samples);
  EXPECT_TRUE(report.passed()) << report.text();
  EXPECT_EQ(chain.description().units[1].counts, std::vector<std::int64_t>{4});
  EXPECT_EQ(testing::error_of([&] { built_chain<double>(mixture, 2); }),
            "unit unit, as it is described: it has a mixture of experts; expected 1 tensor piece");
}

/// Rows that are wider than the blocks in which products are computed.
struct WideSamples final : SampleSource {
  static constexpr std::int64_t width = 1024;
  std::int64_t sample_bytes() const override { return width * sizeof(float); }
  void fill(std::uint64_t first, std::int64_t count, void* batch) override {
    auto* const values = static_cast<float*>(batch);
    for (std::int64_t i = 0; i < count * width; ++i)
      values[i] = static_cast<float>(std::sin(0.7 * static_cast<double>(i) + 0.1 * first));
  }
};

// In one piece a layer may go onto what it takes: the product reads the gradient that it would be
// added to in place.
TEST(Builder, ALayerMayGoOntoItsInput) {
  WideSamples samples;
  ostrakon::Units<double> units;
  units.add("records", [](B& b) { return b.floats(WideSamples::width); });
  units.add("unit", [](B& b, Value x) { return b.linear_onto(x, x, "square"); });
  units.add("misfit", [](B& b, Value x) { return b.losses(misfit<double>(x)); });
  const Chain<double> chain(std::move(units), {2, samples.sample_bytes()});
  const GradientReport report = check_gradients(chain, samples);
  EXPECT_TRUE(report.passed()) << report.text();
}

TEST(Builder, ASoftCapIsSteepWhereItIsFarFromTheCap) {
  for (const std::int64_t pieces : in_pieces) {
    BuiltSamples samples;
    const auto report = check_gradients(
        built_chain<double>(
            [](B& b, Value x) {
              const Value rows = b.soft_cap(x, 0.7);
              return b.linear_onto(rows, b.soft_cap(b.linear(rows, "up", 12), 0.3), "down");
            },
            pieces),
        samples);
    EXPECT_TRUE(report.passed()) << report.text();
  }
}

TEST(Builder, AFrozenParameterHasNoGradient) {
  for (const std::int64_t pieces : in_pieces)
    for (const char* frozen : {"unit.tanh.scale", "unit.up.weight", "unit.up.bias"}) {
      BuiltSamples samples;
      ostrakon::Units<double> units;
      units.add("records", [](B& b) { return b.floats(built_width); });
      units.add("unit", [](B& b, Value x) {
        return b.linear(b.apply(scaled_tanh<double>(b.linear(x, "up", 12), 12)), "down", 16);
      });
      units.add("misfit", [](B& b, Value x) { return b.losses(misfit<double>(x)); });
      const Chain<double> chain(std::move(units), built_leaf(1, pieces),
                                [&](const std::string& name) { return name == frozen; });
      const auto report = check_gradients(chain, samples);
      EXPECT_TRUE(report.passed()) << report.text();
      EXPECT_GT(chain.description().units[1].frozen_elements, 0);
    }
}

/// Tokens of a leaf, and behind them as many targets.
struct WordSamples final : SampleSource {
  static constexpr std::int64_t words = 11;
  std::int64_t sample_bytes() const override {
    return 2 * built_rows * static_cast<std::int64_t>(sizeof(std::int32_t));
  }
  void fill(std::uint64_t first, std::int64_t count, void* batch) override {
    auto* const all = static_cast<std::int32_t*>(batch);
    for (std::int64_t i = 0; i < 2 * count * built_rows; ++i)
      all[i] = static_cast<std::int32_t>((7 * i + static_cast<std::int64_t>(first)) % words);
  }
};

/// Words are in unequal pieces.
TEST(Builder, LossesMayTakeTheUnitsInput) {
  struct Case {
    std::int64_t pieces;
    bool tied;
    HeadSettings head;
  };
  std::vector<Case> cases;
  for (const std::int64_t pieces : in_pieces)
    for (const bool tied : {false, true})
      for (const HeadSettings& head :
           {HeadSettings{0.5}, HeadSettings{0.5, true}, HeadSettings{0.5, false, {2.0, 0.0}},
            HeadSettings{0.5, true, {-0.5, 0.75}}})
        cases.push_back({pieces, tied, head});
  for (const auto& [pieces, is_tied, settings] : cases) {
    const bool tied = is_tied;
    const HeadSettings head = settings;
    WordSamples samples;
    ostrakon::Units<double> units;
    units.add("words",
              [](B& b) { return b.embedding(WordSamples::words, built_width, built_rows, 0.5); });
    units.add("losses", [=](B& b, Value x) {
      return tied ? b.tied_cross_entropy(x, "words", head)
                  : b.cross_entropy(x, "output", WordSamples::words, head);
    });
    const Chain<double> chain(std::move(units),
                              {built_samples, samples.sample_bytes(), built_rows, 1, pieces});
    const auto report = check_gradients(chain, samples);
    EXPECT_TRUE(report.passed()) << pieces << " pieces, times " << head.logits.scale << ", cap "
                                 << head.logits.soft_cap << ": " << report.text();
  }
}

TEST(Builder, AWrongKernelIsFound) {
  for (const std::int64_t pieces : in_pieces) {
    BuiltSamples samples;
    const auto report = check_gradients(
        built_chain<double>(
            [](B& b, Value x) { return b.apply(scaled_tanh<double>(x, built_width, 1)); }, pieces),
        samples);
    ASSERT_FALSE(report.passed());
    EXPECT_EQ(report.problems.front().unit, "unit");
    EXPECT_EQ(report.problems.front().array, "input");
  }
}

double value_at(const Parameter& parameter, std::int64_t element) {
  return std::cos(1.3 * static_cast<double>(element + parameter.elements()));
}
std::vector<double> values_of(const Chain<double>& chain, const std::string& name) {
  std::vector<double> values;
  for (const Parameter& parameter : chain.parameters(1))
    for (std::int64_t i = 0; parameter.name == name && i < parameter.elements(); ++i)
      values.push_back(value_at(parameter, i));
  return values;
}

void expect_values_of_loops(const Chain<double>& chain) {
  constexpr std::int64_t rows = built_samples * built_rows, inner = 12;
  const auto up = values_of(chain, "up.weight"), b = values_of(chain, "up.bias");
  const auto scale = values_of(chain, "tanh.scale");
  const auto down = values_of(chain, "down.weight"), c = values_of(chain, "down.bias");
  std::vector<double> x;
  for (std::int64_t i = 0; i < rows * built_width; ++i)
    x.push_back(std::sin(0.3 * static_cast<double>(i)));
  std::vector<float> batch(static_cast<std::size_t>(rows * built_width));
  const std::vector<double> y =
      model::UnitRun<double>(chain, 1, batch.data(), x, value_at).forward();
  ASSERT_EQ(y.size(), x.size());
  const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < built_width; ++j) {
      double sum = x[at(i * built_width + j)] + c[at(j)];
      for (std::int64_t k = 0; k < inner; ++k) {
        double hidden = b[at(k)];
        for (std::int64_t l = 0; l < built_width; ++l)
          hidden += x[at(i * built_width + l)] * up[at(k * built_width + l)];
        sum += scale[at(k)] * std::tanh(hidden) * down[at(j * inner + k)];
      }
      EXPECT_NEAR(y[at(i * built_width + j)], sum, 1e-12);
    }
}

// y = x + (scale tanh(x U^T + b)) D^T + c, by loops.
TEST(Builder, ComputesWhatItSays) {
  for (const std::int64_t pieces : in_pieces) {
    const auto chain = built_chain<double>(
        [](B& b, Value x) {
          return b.linear_onto(x, b.apply(scaled_tanh<double>(b.linear(x, "up", 12), 12)), "down");
        },
        pieces);
    expect_values_of_loops(chain);
  }
}

template <class F>
std::string refusal_of(const F& function, std::int64_t pieces = 1) {
  const std::string all = testing::error_of([&] { built_chain<double>(function, pieces); });
  const std::string begin = "unit unit, as it is described: ";
  EXPECT_EQ(all.substr(0, begin.size()), begin);
  return all.substr(std::min(begin.size(), all.size()));
}

TEST(Builder, RefusesWhatCantBe) {
  EXPECT_EQ(refusal_of([](B& b, Value x) { return b.soft_cap(x, 0.0); }),
            "soft_cap has a cap of 0; expected a number above 0");
  EXPECT_EQ(refusal_of([](B& b, Value x) { return b.activation(x, Activation::geglu); }),
            "activation is geglu, which takes a gate; expected gated_linear");
  EXPECT_EQ(
      refusal_of([](B& b, Value x) { return b.gated_linear(x, "up", 8, {}, Activation::relu); }),
      "up has the activation relu, which takes no gate; expected a gated one, or linear and "
      "activation");
  EXPECT_EQ(refusal_of([](B& b, Value x) {
              return b.cross_entropy(x, "output", 8, {0.02, false, {0.0, 0.0}});
            }),
            "output has logits times 0; expected a finite number other than 0");
  EXPECT_EQ(refusal_of([](B& b, Value x) {
              return b.cross_entropy(x, "output", 8, {0.02, true, {1.0, -2.0}});
            }),
            "output has a cap of logits of -2; expected 0 for none, or more");
  EXPECT_EQ(refusal_of([](B& b, Value x) {
              return b.norm(x, "norm", {math::NormKind::rmsnorm, false, -1});
            }),
            "norm has an epsilon of -1; expected a number above 0");
  EXPECT_EQ(refusal_of([](B& b, Value x) {
              return b.attention(x, "a", {2, 2, -8});
            }),
            "a has heads of -8 columns; expected 0 for columns / heads, or more");
  EXPECT_EQ(refusal_of([](B& b, Value x) {
              return b.attention(x, "a", {2, 2, 8, {-1.0}});
            }),
            "a has a rotary base of -1; expected 0 for none, or more");
  const auto refusal_of_net = [](const model::DeltaNetSettings& settings) {
    return refusal_of([&](B& b, Value x) { return b.delta_net(x, "d", settings); });
  };
  EXPECT_EQ(refusal_of_net({2, 3, 4, 4}),
            "d has 3 heads of values and 2 of keys; expected a multiple");
  EXPECT_EQ(refusal_of_net({2, 2, 4, 4, 17}),
            "d has a convolution over 17 tokens; expected 1 to 16");
  EXPECT_EQ(refusal_of_net({2, 2, 4, 4, 4, 0.0}),
            "d has an epsilon of 0; expected a number above 0");
  const auto refusal_of_scores = [](const auto& change) {
    return refusal_of([&](B& b, Value x) {
      AttentionSettings settings{2, 2, 8};
      change(settings);
      return b.attention(x, "a", settings);
    });
  };
  EXPECT_EQ(refusal_of_scores([](auto& s) { s.scale = -1.0; }),
            "a has a scale of -1; expected 0 for 1 / sqrt(head width), or 1e-06 to 1e+06");
  EXPECT_EQ(refusal_of_scores([](auto& s) { s.soft_cap = 1e7; }),
            "a has a soft cap of 1e+07; expected 0 for none, or 1e-06 to 1e+06");
  EXPECT_EQ(refusal_of_scores([](auto& s) { s.clip = 1e-9; }),
            "a has a clip of 1e-09; expected 0 for none, or 1e-06 to 1e+06");
  EXPECT_EQ(refusal_of_scores([](auto& s) { s.window = -1; }),
            "a has a window of -1 tokens; expected 0 for all, or more");
  EXPECT_EQ(refusal_of([](B& b, Value x) {
              return b.attention(x, "a", {2, 2, 8, {100.0, 0.4}});
            }),
            "a: rotary.share = 0.4 of heads of width 8 rotates 3 elements; expected an even number "
            "of at least 2, as positions turn pairs");
  EXPECT_EQ(refusal_of([](B& b, Value x) {
              return b.attention(x, "a", {2, 2, 8, {100.0, 1.0, RotaryScaling::yarn, 4.0}});
            }),
            "a: rotary.original_length = 0 with rotary.scaling = yarn; expected 1 or more tokens, "
            "those of the sequences that the model was trained on first");
  EXPECT_EQ(
      refusal_of([](B& b, Value x) {
        return b.attention(x, "a", {2, 2, 8, {100.0}, QueryKeyNorm::whole, NormKind::layernorm});
      }),
      "a has a layer norm of all heads together; expected RMS norm, or norms of each head");
  EXPECT_EQ(refusal_of([](B& b, Value x) {
              b.cross_entropy(x, "output", 8);
              return x;
            }),
            "it returns no value that its Builder has made");
  EXPECT_EQ(refusal_of([](B& b, Value x) {
              const Value n = b.norm(x, "norm");
              b.cross_entropy(n, "output", 8);
              return n;
            }),
            "it computes losses and returns norm; expected the losses");
  EXPECT_EQ(refusal_of([](B& b, Value x) {
              const Value a = b.attention(x, "a", {2, 2, 8, {100.0}});
              return b.cross_entropy(b.linear(a, "b", 16), "output", 8);
            }),
            "rotary works in place, and the unit of the losses computes all of it again; expected "
            "it in a unit before");
  Value elsewhere;
  built_chain<double>([&](B& b, Value x) { return elsewhere = b.norm(x, "norm"); }, 1);
  EXPECT_EQ(refusal_of([&](B& b, Value) { return b.gelu(elsewhere); }),
            "gelu takes a value of another unit; expected one that this Builder has made, or the "
            "unit's input");
  EXPECT_EQ(refusal_of([](B& b, Value x) {
              b.norm(x, "norm");
              return b.linear(x, "up", 16);
            }),
            "nothing takes norm, which is not what it returns; expected all to be used");
  EXPECT_EQ(refusal_of([](B&, Value x) { return x; }),
            "it returns no value that its Builder has made");
  EXPECT_EQ(refusal_of([](B& b, Value) { return b.floats(built_width); }),
            "nothing takes its input");
  EXPECT_EQ(refusal_of([](B& b, Value x) { return b.linear(b.linear(x, "up", 8), "up", 8); }),
            "two parameters have the name up.weight");
  EXPECT_EQ(refusal_of([](B& b, Value x) { return b.linear(x, "up", 0); }),
            "up has 0 columns; expected at least 1");
  EXPECT_EQ(refusal_of([](B& b, Value x) {
              return b.linear(x, "up", std::int64_t{1} << 62);
            }).rfind("up has 4611686018427387904 columns; expected at most ", 0),
            0u);
  EXPECT_EQ(refusal_of([](B& b, Value) { return b.gelu({}); }),
            "gelu takes no value; expected one that this Builder has made, or the unit's input");
  EXPECT_EQ(refusal_of([](B& b, Value x) { return b.add(x, b.linear(x, "up", 3)); }),
            "add takes 16 and 3 columns; expected as many");
  EXPECT_EQ(refusal_of([](B& b, Value x) { return b.apply(scaled_tanh<double>(x, 12)); }),
            "operation tanh is by element, of 16 columns, and parameter tanh.scale has 12 in its "
            "first extent; expected as many");
  EXPECT_EQ(refusal_of([](B& b, Value x) {
              auto own = scaled_tanh<double>(x, built_width);
              own.backward = {};
              return b.apply(own);
            }),
            "operation tanh has no backward; expected one, as it has inputs or parameters");
  EXPECT_EQ(refusal_of([](B& b, Value x) { return b.attention(x, "a", {3}); }),
            "a has 3 heads of 16 columns; expected a divisor, or a head width");
}

TEST(Builder, RefusesSizesThatCantBeCounted) {
  constexpr std::int64_t huge = std::int64_t{1} << 62, large = std::int64_t{1} << 30;
  const auto expect_refusal = [](const std::string& begin, const auto& function) {
    EXPECT_EQ(refusal_of(function).substr(0, begin.size()), begin);
  };
  expect_refusal("embedding has 4611686018427387904 words; expected at most ",
                 [](B& b, Value) { return b.embedding(huge, 8); });
  expect_refusal("parameter token.weight is too large; expected at most ",
                 [](B& b, Value) { return b.embedding(large, large); });
  expect_refusal("parameter position.weight is too large; expected at most ",
                 [](B& b, Value) { return b.embedding(8, 8, huge); });
  expect_refusal("floats has 4611686018427387904 columns; expected at most ",
                 [](B& b, Value) { return b.floats(huge); });
  expect_refusal("a has 2 heads of 4611686018427387904 columns; expected at most ",
                 [](B& b, Value x) {
                   return b.attention(x, "a", {2, 2, huge});
                 });
  expect_refusal("a has 1073741824 heads of 1073741824 columns; expected at most ",
                 [](B& b, Value x) {
                   return b.attention(x, "a", {large, large, large});
                 });
  expect_refusal("output has 4611686018427387904 words; expected at most ",
                 [](B& b, Value x) { return b.cross_entropy(x, "output", huge); });
  expect_refusal("operation tanh has 4611686018427387904 columns; expected at most ",
                 [](B& b, Value x) {
                   auto own = scaled_tanh<double>(x, built_width);
                   own.columns = huge;
                   return b.apply(own);
                 });
}

TEST(Builder, RefusesAScalarInTensorPieces) {
  EXPECT_EQ(refusal_of(
                [](B& b, Value x) {
                  Operation<double> own = mixed<double>(x);
                  own.parameters.push_back(Parameter::zeros("offset", {}));
                  return b.apply(own);
                },
                2),
            "parameter offset has a first extent of 1, which can't be cut into 2 tensor pieces; "
            "expected a multiple, so no scalar");
}

TEST(Builder, RefusesRowsForColumnsInTensorPieces) {
  EXPECT_EQ(refusal_of([](B& b, Value x) { return b.linear(x, "up", 16); }, 2),
            "it returns up, of which tensor ranks have columns; expected linear or linear_onto "
            "last");
  EXPECT_EQ(refusal_of([](B& b, Value x) { return b.add(x, b.linear(x, "up", 16)); }, 2),
            "add takes x and up, of which tensor ranks have rows of one and columns of the other; "
            "expected linear_onto");
  EXPECT_EQ(
      refusal_of([](B& b, Value x) { return b.norm(b.linear(x, "up", 16), "norm"); }, 2),
      "norm takes rows, but of up tensor ranks have columns; expected a linear layer between");
  EXPECT_EQ(refusal_of([](B& b, Value x) { return b.linear_onto(x, x, "down"); }, 2),
            "down takes columns, but of x tensor ranks have rows; expected a linear layer or "
            "attention between");
  EXPECT_EQ(refusal_of([](B& b, Value x) { return b.linear(b.linear(x, "up", 9), "down", 16); }, 2),
            "up has 9 columns, which can't be cut into 2 tensor pieces; expected a multiple");
}

TEST(Builder, RefusesLossesThatAreNotLast) {
  const auto chain = [](bool is_last) {
    ostrakon::Units<double> units;
    units.add("records", [](B& b) { return b.floats(built_width); });
    if (!is_last) units.add("early", [](B& b, Value x) { return b.losses(misfit<double>(x)); });
    units.add("misfit", [=](B& b, Value x) {
      return is_last ? b.norm(x, "norm") : b.losses(misfit<double>(x));
    });
    return Chain<double>(std::move(units), built_leaf());
  };
  EXPECT_EQ(
      testing::error_of([&] { chain(true); }),
      "unit misfit, as it is described: it is the last and computes no losses: expected losses "
      "or cross_entropy");
  EXPECT_NE(testing::error_of([&] { chain(false); }), "");
}

TEST(Builder, RefusesABatchThatIsTooShort) {
  const auto refused = [](auto first, auto last) {
    return testing::error_of([&] {
      ostrakon::Units<float> units;
      units.add("first", first);
      units.add("last", last);
      Chain<float>(std::move(units), {2, 16, 4});
    });
  };
  const auto embedding = [](Builder<float>& b) { return b.embedding(11, 8); };
  const auto losses = [](Builder<float>& b, Value x) { return b.cross_entropy(x, "out", 11); };
  EXPECT_EQ(refused(embedding, losses),
            "unit last, as it is described: it reads 64 bytes of a batch, but those of a leaf are "
            "32");
  EXPECT_EQ(refused([](Builder<float>& b) { return b.floats(2); }, losses),
            "unit first, as it is described: it reads 64 bytes of a batch, but those of a leaf are "
            "32");
}

}  // namespace
}  // namespace ostrakon::tests
