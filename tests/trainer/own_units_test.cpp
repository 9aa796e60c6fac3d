// SPDX-License-Identifier: Apache-2.0
// Units that a Builder describes, trained: the bits of one rank with any strategy, tensor ranks and
// stages, and those of a deck's model that computes the same.

#include <gtest/gtest.h>
#include <mpi.h>

#include <cmath>
#include <ostrakon/trainer/make_trainer.hpp>
#include <ostrakon/training.hpp>

#include "model/small_units.hpp"
#include "support/scratch_folder.hpp"
#include "trainer/small_runs.hpp"

namespace ostrakon::tests {
namespace {

/// The history of a few steps on the ranks of `mesh`.
History history_of(Trainer& trainer, SampleSource& samples, std::int64_t steps) {
  trainer.allocate();
  trainer.initialize();
  History history;
  for (std::int64_t step = 1; step <= steps; ++step)
    history.add(trainer.step(samples, step), trainer);
  return history;
}

void expect_bits(const History& run, const History& one, const std::string& what) {
  EXPECT_EQ(run.losses, one.losses) << what;
  EXPECT_EQ(run.norms, one.norms) << what;
  EXPECT_EQ(run.digests, one.digests) << what;
}

/// Operations of one's own, by element and by row, of columns and of rows.
template <class T>
Chain<T> own_chain(std::int64_t tensor_ranks, std::int64_t pieces) {
  ostrakon::Units<T> units;
  units.add("records", [](Builder<T>& b) { return b.floats(built_width); });
  for (int i = 0; i < 2; ++i)
    units.add(text("residual.", i), [](Builder<T>& b, Value x) {
      const Value n = b.norm(x, "norm");  // which two layers take
      const Value up = b.add(b.linear(n, "up", 12, {0.3}), b.linear(n, "more", 12, {0.3}));
      return b.linear_onto(x, b.apply(scaled_tanh<T>(up, 12)), "down", {0.3});
    });
  units.add("mixed", [](Builder<T>& b, Value x) { return b.apply(mixed<T>(x)); });
  units.add("misfit", [](Builder<T>& b, Value x) { return b.losses(misfit<T>(x)); });
  return {std::move(units), built_leaf(tensor_ranks, pieces)};
}

TrainerSettings own_settings() {
  TrainerSettings settings;
  settings.steps = 4;
  settings.global_batch_size = 8 * built_samples;
  settings.micro_batch_size = built_samples;
  settings.optimizer.learning_rate = 1e-2;
  return settings;
}

History train_own(const TrainerSettings& settings, std::int64_t tensor_ranks, std::int64_t pieces,
                  MPI_Comm comm, int stages = 1) {
  Mesh mesh(comm, 0, world_group, stages);
  Trainer trainer(make_model(own_chain<float>(tensor_ranks, pieces)), settings, mesh);
  BuiltSamples samples;
  return history_of(trainer, samples, settings.steps);
}

TEST(OwnUnits, HaveTheBitsOfOneRankWithAnyStrategy) {
  const int ranks = world_ranks();
  for (const std::int64_t pieces : {1, 4}) {
    const History one = train_own(own_settings(), 1, pieces, MPI_COMM_SELF);
    EXPECT_LT(one.losses.back(), one.losses.front());
    for (std::int64_t tensor = 1; tensor <= std::min<std::int64_t>(ranks, pieces); tensor *= 2)
      for (const auto sharding : all_shardings)
        for (const int every : {0, 1}) {
          TrainerSettings settings = own_settings();
          settings.policy.sharding = sharding;
          settings.policy.activation_checkpointing.every = every;
          settings.policy.offload = every == 1 ? plan::Offload::all : plan::Offload::none;
          expect_bits(train_own(settings, tensor, pieces, MPI_COMM_WORLD), one,
                      text(pieces, " pieces, tensor ", tensor, ", every ", every));
        }
  }
}

TEST(OwnUnits, HaveTheBitsOfOneRankInStages) {
  const int ranks = world_ranks();
  if (ranks == 1) GTEST_SKIP() << "needs others";
  const History one = train_own(own_settings(), 1, 2, MPI_COMM_SELF);
  for (std::int64_t tensor = 1; tensor <= ranks / 2; tensor *= 2)
    expect_bits(train_own(own_settings(), tensor, 2, MPI_COMM_WORLD, 2), one,
                text("2 stages, tensor ", tensor));
}

/// The model of a deck in the style of GPT-2, as units of a Builder.
template <class T>
Chain<T> gpt(const model::DecoderSettings& m, const LeafSize& leaf) {
  ostrakon::Units<T> units;
  const double out = 0.02 / std::sqrt(2.0 * static_cast<double>(m.layers));
  units.add("embedding",
            [=](Builder<T>& b) { return b.embedding(m.vocabulary, m.width, leaf.rows); });
  for (std::int64_t i = 0; i < m.layers; ++i)
    units.add(text("block.", i), [=](Builder<T>& b, Value x) {
      const Value a = b.attention(b.norm(x, "attention.norm"), "attention", {m.heads});
      const Value middle = b.linear_onto(x, a, "attention.out", {out});
      const Value up = b.linear(b.norm(middle, "mlp.norm"), "mlp.up", m.ffn_width);
      return b.linear_onto(middle, b.gelu(up), "mlp.down", {out});
    });
  units.add("head", [=](Builder<T>& b, Value x) {
    const Value n = b.norm(x, "norm");
    return m.tie_embeddings ? b.tied_cross_entropy(n, "embedding")
                            : b.cross_entropy(n, "output", m.vocabulary);
  });
  return {std::move(units), leaf};
}

/// In the style of Llama 3, or with experts of Mixtral.
template <class T>
Chain<T> llama(const model::DecoderSettings& m, const LeafSize& leaf) {
  ostrakon::Units<T> units;
  const double out = 0.02 / std::sqrt(2.0 * static_cast<double>(m.layers));
  const NormSettings rms{NormKind::rmsnorm};
  units.add("embedding", [=](Builder<T>& b) { return b.embedding(m.vocabulary, m.width); });
  for (std::int64_t i = 0; i < m.layers; ++i)
    units.add(text("block.", i), [=](Builder<T>& b, Value x) {
      const Value n = b.norm(x, "attention.norm", rms);
      const Value a =
          b.attention(n, "attention", {m.heads, m.kv_heads, 0, m.rotary.base}, {0.02, false});
      const Value middle = b.linear_onto(x, a, "attention.out", {out, false});
      const Value normed = b.norm(middle, "mlp.norm", rms);
      const MlpSettings mlp{Activation::swiglu, {0.02, false}, {out, false}};
      return m.experts.exist() ? b.mixture_onto(middle, normed, "mlp", m.experts, mlp)
                               : b.mlp_onto(middle, normed, "mlp", m.ffn_width, mlp);
    });
  units.add("head", [=](Builder<T>& b, Value x) {
    const Value n = b.norm(x, "norm", rms);
    return m.tie_embeddings ? b.tied_cross_entropy(n, "embedding")
                            : b.cross_entropy(n, "output", m.vocabulary);
  });
  return {std::move(units), leaf};
}

History train_deck(const config::Settings& settings) {
  SmallRun run(settings, MPI_COMM_SELF);
  History history;
  for (std::int64_t step = 1; step <= settings.training.steps; ++step)
    history.add(run.step(step), run.trainer);
  return history;
}

template <class T>
History train_units(const config::Settings& settings, std::int64_t tensor_ranks, MPI_Comm comm) {
  Mesh mesh(comm);
  const auto samples =
      data::open_dataset(settings.data, data::Split::training, settings.training.sequence_length,
                         settings.model.vocabulary, settings.training.seed, mesh.world());
  const LeafSize leaf{settings.training.micro_batch_size, samples->sample_bytes(),
                      settings.training.sequence_length, tensor_ranks, settings.tensor_grain};
  const bool is_gpt = settings.model.activation == model::Activation::gelu;
  Chain<T> chain = is_gpt ? gpt<T>(settings.model, leaf) : llama<T>(settings.model, leaf);
  Trainer trainer(make_model(std::move(chain)), train::trainer_settings(settings, mesh), mesh);
  return history_of(trainer, *samples, settings.training.steps);
}

TEST(OwnUnits, HaveTheBitsOfADecksModel) {
  const int ranks = world_ranks();
  for (const std::string style : {"GPT-2", "Llama", "Mixtral"})
    for (const bool is_tied : {true, false})
      for (const std::int64_t pieces : {1, 4}) {
        if (style == "Mixtral" && pieces > 1) continue;
        config::Settings settings = style == "GPT-2" ? small_gpt2(8) : small_llama(8);
        settings.model.width = 48;
        settings.model.heads = settings.model.kv_heads = 4;
        settings.model.tie_embeddings = is_tied;
        if (style == "Mixtral") settings.model.experts = {4, 2, 1, 32};
        settings.tensor_grain = pieces;
        settings.training.steps = 3;
        const History deck = train_deck(settings);
        for (std::int64_t tensor = 1; tensor <= std::min<std::int64_t>(ranks, pieces); tensor *= 2)
          expect_bits(
              train_units<float>(settings, tensor, MPI_COMM_WORLD), deck,
              text(style, is_tied ? ", tied, " : ", untied, ", pieces, " pieces, tensor ", tensor));
      }
}

/// In pieces ranks make addends of an embedding, of which all that is behind it takes sums.
template <class T>
Chain<T> embedded_and_more(std::int64_t words, const LeafSize& leaf) {
  ostrakon::Units<T> units;
  units.add("embedding", [=](Builder<T>& b) {
    const Value e = b.embedding(words, built_width, leaf.rows, 0.5);
    const Value up = b.gelu(b.linear(b.soft_cap(e, 2.0), "up", built_width, {0.5}));
    return b.add(b.linear_onto(e, up, "down", {0.5}), b.apply(mixed<T>(e)));
  });
  units.add("head", [=](Builder<T>& b, Value x) {
    return b.cross_entropy(b.norm(x, "norm"), "output", words);
  });
  return {std::move(units), leaf};
}

TEST(OwnUnits, MayComputeBehindAnEmbedding) {
  config::Settings settings = small_llama(8);
  settings.training.steps = 3;
  const auto train = [&](auto type, std::int64_t tensor_ranks, MPI_Comm comm) {
    Mesh mesh(comm);
    const auto samples =
        data::open_dataset(settings.data, data::Split::training, settings.training.sequence_length,
                           settings.model.vocabulary, 1, mesh.world());
    const LeafSize leaf{settings.training.micro_batch_size, samples->sample_bytes(),
                        settings.training.sequence_length, tensor_ranks, 2};
    Trainer trainer(make_model(embedded_and_more<decltype(type)>(settings.model.vocabulary, leaf)),
                    train::trainer_settings(settings, mesh), mesh);
    return history_of(trainer, *samples, settings.training.steps);
  };
  for (std::int64_t tensor = 1; tensor <= std::min(world_ranks(), 2); ++tensor) {
    expect_bits(train(1.0f, tensor, MPI_COMM_WORLD), train(1.0f, 1, MPI_COMM_SELF),
                text("tensor ", tensor));
    expect_bits(train(bf16(), tensor, MPI_COMM_WORLD), train(bf16(), 1, MPI_COMM_SELF),
                text("16 bits, tensor ", tensor));
  }
}

TEST(OwnUnits, TrainInSixteenBits) {
  config::Settings settings = small_gpt2(8);
  settings.training.steps = 3;
  const History whole = train_units<float>(settings, 1, MPI_COMM_WORLD);
  const History half = train_units<bf16>(settings, 1, MPI_COMM_WORLD);
  for (std::size_t i = 0; i < whole.losses.size(); ++i)
    EXPECT_NEAR(half.losses[i], whole.losses[i], 0.02 * whole.losses[i]);
}

TEST(OwnUnits, GradientsOfTiedLossesAreRight) {
  config::Settings settings = small_gpt2(8);
  for (const std::int64_t pieces : {1, 2}) {
    settings.model.heads = settings.model.kv_heads = 4;
    Mesh mesh(MPI_COMM_SELF);
    const auto samples =
        data::open_dataset(settings.data, data::Split::training, settings.training.sequence_length,
                           settings.model.vocabulary, settings.training.seed, mesh.world());
    const LeafSize leaf{2, samples->sample_bytes(), settings.training.sequence_length, 1, pieces};
    const auto report = check_gradients(gpt<double>(settings.model, leaf), *samples);
    EXPECT_TRUE(report.passed()) << report.text();
  }
}

TEST(OwnUnits, RefusesATieToNoEmbedding) {
  const auto tied_to = [](const std::string& unit) {
    return testing::error_of([&] {
      ostrakon::Units<float> units;
      units.add("embedding", [](Builder<float>& b) { return b.embedding(11, 8); });
      units.add("norm", [](Builder<float>& b, Value x) { return b.norm(x, "norm"); });
      units.add("head", [&](Builder<float>& b, Value x) { return b.tied_cross_entropy(x, unit); });
      Chain<float>(std::move(units), {1, 32, 4});
    });
  };
  EXPECT_EQ(tied_to("embedding"), "no error");
  for (const char* unit : {"norm", "head", "other"})
    EXPECT_EQ(tied_to(unit), text("unit head, as it is described: the losses are tied to ", unit,
                                  ", which is no unit before it with an embedding"));
}

}  // namespace
}  // namespace ostrakon::tests
