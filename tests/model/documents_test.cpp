// SPDX-License-Identifier: Apache-2.0
// Documents in one sequence have the losses and gradients of each of them alone.
#include <gtest/gtest.h>

#include "model/model_run.hpp"
#include "support/messages.hpp"

namespace ostrakon::test {
namespace {

/// Rows of a leaf, by sequence and position.
std::vector<std::int64_t> rows_by_position(const model::LeafShape& leaf) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(leaf.batch * leaf.tokens));
  for (std::int64_t s = 0; s < leaf.batch; ++s)
    for (std::int64_t row = 0; row < leaf.part_tokens(); ++row)
      rows[s * leaf.tokens + leaf.sequence().position(0, row)] = s * leaf.part_tokens() + row;
  return rows;
}

/// A document, by position in all sequences one after the other.
struct Document {
  std::int64_t begin, end;
};

/// Documents of each of these lengths in turn, as long as a sequence lasts.
std::vector<Document> documents_of(const model::LeafShape& leaf) {
  constexpr std::int64_t lengths[] = {3, 1, 5, 2, 1, 1, 4};
  std::vector<Document> documents;
  std::size_t next = 0;
  for (std::int64_t begin = 0; begin < leaf.batch * leaf.tokens;) {
    const std::int64_t end_of_sequence = (begin / leaf.tokens + 1) * leaf.tokens;
    const std::int64_t end =
        std::min(begin + lengths[next++ % std::size(lengths)], end_of_sequence);
    documents.push_back({begin, end});
    begin = end;
  }
  return documents;
}

template <class T>
using Gradients = std::vector<std::vector<compute_t<T>>>;  // of each parameter

template <class T>
Gradients<T> gradients_of(const ModelRun<T>& run) {
  Gradients<T> all;
  run.for_each_parameter([&](int u, const model::Parameter& parameter) {
    all.push_back(part(run.gradients[u].values(), parameter));
  });
  return all;
}

/// Copies the parameters of one run to another, whose leaf may have other pieces.
template <class T>
void take_parameters(const ModelRun<T>& from, ModelRun<T>& to) {
  std::vector<std::vector<T>> values;
  from.for_each_parameter([&](int u, const model::Parameter& parameter) {
    values.push_back(part(from.parameters[u].values(), parameter));
  });
  std::size_t next = 0;
  to.for_each_parameter([&](int u, const model::Parameter& parameter) {
    std::vector<T> flat = to.parameters[u].values();
    const std::vector<T>& of = values[next++];
    for_each_run_of(parameter, [&](std::int64_t at, std::int64_t first, std::int64_t count) {
      std::copy_n(of.begin() + first, count, flat.begin() + at);
    });
    to.parameters[u].assign(flat);
  });
}

template <class T>
void expect_as_alone(ModelCase which, bool recomputes, double tolerance) {
  const std::vector<Document> documents = documents_of(which.leaf);
  const std::vector<std::int64_t> rows = rows_by_position(which.leaf);
  which.settings.max_positions = std::max(which.settings.max_positions, which.leaf.tokens);
  which.leaf.has_documents = which.leaf.restarts_positions = true;
  model::Recompute recompute;
  recompute.attention = recomputes;
  ModelRun<T> packed(which, recompute);
  std::vector<std::int32_t> begins(rows.size());
  for (const Document& document : documents)
    for (std::int64_t i = document.begin; i < document.end; ++i)
      begins[rows[i]] = static_cast<std::int32_t>(document.begin % which.leaf.tokens);
  packed.set_batch(packed.token_ids, packed.target_ids, begins);
  packed.forward();
  packed.backward(1, recomputes);
  packed.expect_guards_intact();
  const auto losses = packed.losses();
  const Gradients<T> found = gradients_of(packed);

  Gradients<T> expected = found;
  for (auto& gradient : expected) std::fill(gradient.begin(), gradient.end(), 0);
  for (const Document& document : documents) {
    ModelCase alone = which;
    alone.leaf = {1, document.end - document.begin};
    ModelRun<T> run(alone);
    take_parameters(packed, run);
    for (std::int64_t i = document.begin; i < document.end; ++i) {
      run.token_ids[i - document.begin] = packed.token_ids[rows[i]];
      run.target_ids[i - document.begin] = packed.target_ids[rows[i]];
    }
    run.set_batch(run.token_ids, run.target_ids);
    run.forward();
    run.backward(1);
    const auto of_document = run.losses();
    for (std::int64_t i = document.begin; i < document.end; ++i)
      ASSERT_NEAR(losses[rows[i]], of_document[i - document.begin],
                  tolerance * of_document[i - document.begin])
          << "token " << i << " of the document of [" << document.begin << ", " << document.end
          << ")";
    const Gradients<T> more = gradients_of(run);
    for (std::size_t p = 0; p < expected.size(); ++p)
      for (std::size_t i = 0; i < expected[p].size(); ++i) expected[p][i] += more[p][i];
  }
  std::size_t p = 0;
  packed.for_each_parameter([&](int, const model::Parameter& parameter) {
    const bool is_zero = std::all_of(expected[p].begin(), expected[p].end(),
                                     [](auto element) { return element == 0; });
    if (is_zero)
      EXPECT_EQ(found[p], expected[p]) << parameter.full_name();
    else
      EXPECT_LE(relative_distance(found[p], expected[p]), 10 * tolerance) << parameter.full_name();
    ++p;
  });
}

/// The models that may have documents, in which a document alone is the same: longer sequences have
/// no other frequencies, and nothing is a mean over all tokens.
std::vector<ModelCase> cases() {
  std::vector<ModelCase> some;
  for (const ModelCase& which : model_cases()) {
    const model::DecoderSettings& s = which.settings;
    if (s.has_delta_nets() || s.multi_token_depth > 0 ||
        s.rotary.scaling == math::RotaryScaling::longrope ||
        s.experts.balance != model::RouterBalance::none)
      continue;
    some.push_back(which);
  }
  return some;
}

TEST(Documents, HaveTheLossesAndGradientsOfEachAlone) {
  bool recomputes = false;
  for (const ModelCase& which : cases()) {
    SCOPED_TRACE(which.name);
    expect_as_alone<double>(which, recomputes, 1e-12);
    recomputes = !recomputes;
  }
}

TEST(Documents, HaveTheLossesOfEachAloneInFloat) {
  std::size_t number = 0;
  for (const ModelCase& which : cases()) {
    SCOPED_TRACE(which.name);
    if (number++ % 3 == 0) expect_as_alone<float>(which, false, 1e-6);
  }
}

/// Where positions do not restart, they are those of the sequence: one document has the bits of a
/// sequence without documents in either way.
TEST(Documents, OneHasTheBitsOfNone) {
  for (const ModelCase& which : cases()) {
    SCOPED_TRACE(which.name);
    ModelRun<float> none(which);
    none.forward();
    none.backward(1);
    for (const bool restarts : {false, true}) {
      ModelCase with = which;
      with.leaf.has_documents = true;
      with.leaf.restarts_positions = restarts;
      ModelRun<float> one(with);
      one.forward();
      one.backward(1);
      EXPECT_EQ(bits(one.losses()), bits(none.losses()));
      for (int u = 0; u < one.units(); ++u)
        EXPECT_EQ(bits(one.gradients[u].values()), bits(none.gradients[u].values())) << u;
    }
  }
}

TEST(Documents, PositionsContinueUnlessTheyRestart) {
  for (ModelCase which : cases()) {
    if (which.name != "gpt2" && which.name != "llama") continue;
    SCOPED_TRACE(which.name);
    which.leaf.has_documents = true;
    const std::int32_t second = 3;  // the position at which a second document begins
    const auto losses = [&](bool restarts) {
      ModelCase with = which;
      with.leaf.restarts_positions = restarts;
      ModelRun<double> run(with);
      std::vector<std::int32_t> begins;
      for (std::int64_t row = 0; row < run.rows(); ++row)
        begins.push_back(row % which.leaf.tokens < second ? 0 : second);
      run.set_batch(run.token_ids, run.target_ids, begins);
      run.forward();
      return run.losses();
    };
    const std::vector<double> continued = losses(false), restarted = losses(true);
    // Rotary positions are relative, learned ones are not.
    const bool is_rotary = which.settings.positions == model::Positions::rotary;
    for (std::size_t row = 0; row < continued.size(); ++row) {
      const bool in_first = static_cast<std::int64_t>(row) % which.leaf.tokens < second;
      if (in_first || is_rotary)
        EXPECT_NEAR(continued[row], restarted[row], 1e-13 * continued[row]) << row;
      else
        EXPECT_GT(std::abs(continued[row] - restarted[row]), 1e-3 * continued[row]) << row;
    }
  }
}

TEST(Documents, AreRefusedWhereTheyCanNotBeApart) {
  const ModelCase llama = model_cases()[1];
  const auto message_of = [&](const auto& change) {
    ModelCase which = llama;
    which.leaf.has_documents = true;
    change(which);
    return testing::error_of([&] { model::Decoder<float>(which.settings, which.leaf, {}, {}); });
  };
  EXPECT_EQ(message_of([](ModelCase&) {}), "no error");
  EXPECT_EQ(message_of([](ModelCase& which) { which.settings.multi_token_depth = 1; }),
            "model multi_token_depth with separate documents in a sequence: the token behind the "
            "next one may be another document's");
  EXPECT_EQ(message_of([](ModelCase& which) {
              which.settings.delta_net = {2, 4, 5, 3};
              which.settings.delta_layers = *model::LayerPattern::parse("first 1");
            }),
            "model delta_layers with separate documents in a sequence: their state passes all "
            "tokens");
  EXPECT_EQ(message_of([](ModelCase& which) {
              which.leaf.batch = 1;
              which.leaf.decoded_rows = 2;
            }),
            "decoding with separate documents in a sequence: what is decoded is one document");
  EXPECT_EQ(message_of([](ModelCase& which) {
              which.leaf.has_documents = false;
              which.leaf.restarts_positions = true;
            }),
            "positions restart in documents, but sequences have none; expected documents");
}

}  // namespace
}  // namespace ostrakon::test
