// SPDX-License-Identifier: Apache-2.0
// Settings without effect, and the strategy that is shown.
#include <gtest/gtest.h>

#include <ostrakon/config/value.hpp>
#include <ostrakon/model/decoder.hpp>
#include <ostrakon/optim/muon.hpp>
#include <ostrakon/optim/outlier_filter.hpp>
#include <ostrakon/plan/ir/step_plan.hpp>
#include <random>

#include "config/decks.hpp"
#include "support/device_array.hpp"
#include "support/messages.hpp"

namespace ostrakon::config {
namespace {

/// The keys for gathers, each with a value that changes a plan if the key has an effect.
const std::vector<Override> of_gathers = {
    {"parallel.reshard_after_forward", "never"},
    {"parallel.forward_prefetch", "3"},
    {"parallel.backward_prefetch", "0"},
    {"parallel.in_flight_gathers", "1"},
    {"parallel.units", "block.*: backward_prefetch 3, forward_prefetch 0"}};

std::uint64_t plan_of(const Settings& settings, int ranks) {
  plan::Policy policy = policy_of(settings);
  policy.shard_group = settings.shard_group == mesh::world_group ? ranks : settings.shard_group;
  const model::Decoder<float> decoder(settings.model, {1, settings.training.sequence_length});
  plan::ModelDescription model = decoder.description();
  for (int u = 0; u < decoder.units(); ++u)
    for (const model::Parameter& one : decoder.unit(u).parameters())
      if (optim::rule_of(settings.optimizer, one) == optim::OptimizerKind::muon)
        model.units[u].whole_matrices.push_back({one.offset, one.elements(), 1.0});
  std::uint64_t hash = 0;
  for (plan::Purpose purpose : {plan::Purpose::train, plan::Purpose::evaluate})
    hash = 31 * hash + plan::build_step_plan(model, ranks, policy, purpose).hash();
  return hash;
}

/// Returns how many of of_gathers have no effect with `first`, over all shardings.
int gathers_without_effect(const std::vector<Override>& first) {
  constexpr int ranks = 8;
  int without = 0;
  for (const char* sharding : {"none", "optimizer", "gradients", "full"})
    for (const char* group : {"world", "2"})
      for (const char* over : {"shard_group", "world"}) {
        if (sharding == std::string("none") && over == std::string("world")) continue;
        std::vector<Override> common = first;
        common.insert(common.end(), {{"parallel.sharding", sharding},
                                     {"parallel.shard_group", group},
                                     {"parallel.shard_optimizer_over", over},
                                     {"model.tie_embeddings", "false"}});
        const Settings base = read(synthetic, common);
        const std::uint64_t plain = plan_of(base, ranks);
        for (const plan::Setting& setting : strategy(base, plan::Accumulation::shard_each))
          EXPECT_TRUE(setting.has_effect) << setting.key << " was not given";
        for (const Override& one : of_gathers) {
          SCOPED_TRACE(text(sharding, ' ', group, ' ', over, ' ', one.first));
          std::vector<Override> overrides = common;
          overrides.push_back(one);
          const Settings settings = read(synthetic, overrides);
          bool has_effect = true;
          for (const plan::Setting& setting : strategy(settings, plan::Accumulation::shard_each))
            if ("parallel." + setting.key == one.first) {
              has_effect = setting.has_effect;
            } else {
              EXPECT_TRUE(setting.has_effect) << setting.key;
            }
          EXPECT_EQ(plan_of(settings, ranks) != plain, has_effect);
          const std::string line = text("without effect with sharding ", sharding, ": ",
                                        one.first.substr(one.first.find('.') + 1), '\n');
          EXPECT_EQ(summary(settings).find(line) == std::string::npos, has_effect)
              << summary(settings);
          without += has_effect ? 0 : 1;
        }
      }
  return without;
}

TEST(Strategy, SettingsHaveNoEffectWhereThePlanIsTheSameWithoutThem) {
  struct Case {
    std::vector<Override> first;
    int without;
  };
  const Override no_clipping = {"optimizer.clip_norm", "0"};
  constexpr int all_but_forward_prefetch = (2 + 8) * 4;
  for (const Case& one :
       {Case{{}, 2 * 4 + 2 * (3 * 5 + 4)}, Case{{no_clipping}, 2 * 4 + 2 * (3 * 5 + 4)},
        Case{{{"optimizer.name", "muon"}}, all_but_forward_prefetch},
        Case{{{"memory.offload", "optimizer"}}, all_but_forward_prefetch},
        // With early updates, nothing is prefetched.
        Case{{{"memory.offload", "optimizer"}, no_clipping}, (2 + 8) * 5},
        Case{{{"memory.offload", "parameters"}}, 0}, Case{{{"memory.offload", "all"}}, 0},
        Case{{{"memory.offload", "all"}, no_clipping}, 0}}) {
    SCOPED_TRACE(one.first.empty() ? "" : one.first.front().second);
    EXPECT_EQ(gathers_without_effect(one.first), one.without);
  }
}

/// Returns the learning rates of a whole run.
std::vector<double> rates_of(const Settings& settings) {
  std::vector<double> rates;
  for (std::int64_t step = 1; step <= settings.training.steps; ++step)
    rates.push_back(optim::learning_rate(settings.schedule, settings.optimizer.learning_rate, step,
                                         settings.training.steps));
  return rates;
}

/// Returns a matrix of a block and then a vector, after some updates with gradients of both signs
/// and many magnitudes.
std::vector<float> updates_of(const Settings& settings) {
  constexpr std::int64_t side = 8, count = side * side;
  const optim::OptimizerSettings& optimizer = settings.optimizer;
  model::Parameter matrix;
  matrix.owner = "block.0";
  matrix.shape = {side, side};
  const optim::OptimizerKind of_matrix = optim::rule_of(optimizer, matrix);
  const optim::OptimizerKind of_vector = optim::rule_of(optimizer, model::Parameter());
  const test::DeviceArray<unsigned char> workspace(
      optim::orthogonalize_workspace<float>(side, side));
  std::vector<float> parameters(2 * count, 1.0F), gradients(2 * count);
  std::mt19937 random(11);
  const auto run = [&](auto one) {
    using Moment = decltype(one);
    std::vector<Moment> first(2 * count, Moment(0.0F)), second(2 * count, Moment(0.0F));
    optim::UpdateStep step;
    step.learning_rate = 0.1;
    for (step.step = 1; step.step <= 32; ++step.step) {
      for (float& gradient : gradients)
        gradient = 1e-3F * (static_cast<float>(random() % 4096) - 2047.5F);
      // The matrix comes first.
      const auto part = [&](auto& all, bool of_the_matrix) {
        return host_view(all).range(of_the_matrix ? 0 : count, of_the_matrix ? count : 2 * count);
      };
      const auto update = [&](optim::OptimizerKind rule, bool of_the_matrix) {
        optim::update<float, Moment, OnHost>(
            math::CallingThread(), rule, optimizer, step, part(parameters, of_the_matrix),
            part(gradients, of_the_matrix), part(first, of_the_matrix),
            part(second, of_the_matrix));
      };
      update(of_vector, false);
      if (of_matrix != optim::OptimizerKind::muon) {
        update(of_matrix, true);
        continue;
      }
      optim::muon_direction<float, Moment, OnHost>(math::CallingThread(), optimizer, step,
                                                   part(gradients, true), part(first, true));
      const test::DeviceArray<float> direction(
          std::vector<float>(gradients.begin(), gradients.begin() + count));
      optim::orthogonalize(Exec(), View<float**>(direction.data(), side, side),
                           optimizer.muon_iterations, view_as<std::byte>(workspace.view()));
      const std::vector<float> orthogonal = direction.host();
      optim::muon_apply<float, OnHost>(math::CallingThread(), optimizer, step, side, side,
                                       part(parameters, true), host_view(orthogonal));
    }
  };
  if (settings.parallel.moments.dtype == DType::bf16) {
    run(bf16());
  } else {
    run(0.0F);
  }
  return parameters;
}

/// Whether the summary has that line.
bool is_idle(const Settings& settings, const std::string& line) {
  return summary(settings).find("               without effect with " + line + "\n") !=
         std::string::npos;
}

TEST(Strategy, KeysOfOptimizersHaveNoEffectWhereUpdatesAreTheSameWithoutThem) {
  int idle = 0;
  for (const char* optimizer : {"adamw", "sgd", "lion", "muon"})
    for (const char* momentum : {"0", "0.5"})
      for (const Override& one : {Override{"beta1", "0.5"}, Override{"beta2", "0.5"},
                                  Override{"epsilon", "1e-3"}, Override{"momentum", "0.75"},
                                  Override{"nesterov", "false"}, Override{"muon_iterations", "4"},
                                  Override{"muon_rate_factor", "2"}, Override{"moments", "bf16"}}) {
        SCOPED_TRACE(text(optimizer, ' ', momentum, ' ', one.first));
        const bool is_sgd = optimizer == std::string("sgd");
        const bool takes_momentum = is_sgd || optimizer == std::string("muon");
        std::vector<Override> overrides = {{"optimizer.name", optimizer}};
        if (takes_momentum) overrides.emplace_back("optimizer.momentum", momentum);
        const std::vector<float> plain = updates_of(read(synthetic, overrides));
        overrides.emplace_back("optimizer." + one.first, one.second);
        const Settings settings = read(synthetic, overrides);
        const bool is_same = updates_of(settings) == plain;
        const bool by_momentum =
            takes_momentum && (one.first == "nesterov" || one.first == "moments");
        EXPECT_EQ(is_idle(settings, by_momentum ? text("momentum ", momentum, ": ", one.first)
                                                : text("name ", optimizer, ": ", one.first)),
                  is_same)
            << summary(settings);
        EXPECT_EQ(summary(settings).find("without effect") != std::string::npos, is_same);
        idle += is_same ? 1 : 0;
      }
  EXPECT_EQ(idle, 2 * 4 + (7 + 5) + 2 * 5 + 1);
}

TEST(Strategy, KeysOfSchedulesHaveNoEffectWhereRatesAreTheSameWithoutThem) {
  int idle = 0;
  for (const char* tail :
       {"cosine", "linear", "constant", "warmup_stable_decay", "inverse_square_root"})
    for (const Override& one : {Override{"decay_steps", "20"}, Override{"final_fraction", "0.5"}}) {
      SCOPED_TRACE(text(tail, ' ', one.first));
      std::vector<Override> overrides = {{"schedule.tail", tail}, {"schedule.warmup_steps", "5"}};
      const std::vector<double> plain = rates_of(read(synthetic, overrides));
      overrides.emplace_back("schedule." + one.first, one.second);
      const Settings settings = read(synthetic, overrides);
      const bool is_same = rates_of(settings) == plain;
      const bool never_falls = settings.schedule.tail == optim::Tail::warmup_stable_decay;
      EXPECT_EQ(is_idle(settings, never_falls ? text("decay_steps 0: ", one.first)
                                              : text("tail ", tail, ": ", one.first)),
                is_same)
          << summary(settings);
      EXPECT_EQ(summary(settings).find("without effect") != std::string::npos, is_same);
      idle += is_same ? 1 : 0;
    }
  EXPECT_EQ(idle, 4 + 3);
  const Settings falls = read(synthetic, {{"schedule.tail", "warmup_stable_decay"},
                                          {"schedule.decay_steps", "20"},
                                          {"schedule.final_fraction", "0.5"}});
  EXPECT_LACKS(summary(falls), "without effect");
}

TEST(Strategy, ATrialOfAFewStepsNeedsNoOtherSchedule) {
  for (const char* tail :
       {"cosine", "linear", "constant", "warmup_stable_decay", "inverse_square_root"}) {
    SCOPED_TRACE(tail);
    const std::vector<Override> whole = {{"schedule.tail", tail}, {"schedule.warmup_steps", "30"}};
    std::vector<Override> trial = whole;
    trial.emplace_back("training.steps", "20");
    const Settings settings = read(synthetic, trial);
    EXPECT_HAS(summary(settings),
               "\n               the run of 20 steps ends in the warm-up, at "
               "20/30 of the peak learning rate\n");
    EXPECT_LACKS(summary(read(synthetic, whole)), "warm-up");
    // The written deck has the used values, and can be read, also to train for longer.
    expect_equal(read(write_deck(settings)), settings);
    std::vector<double> first = rates_of(read(synthetic, whole));
    first.resize(20);
    EXPECT_EQ(rates_of(settings), first);
  }
  const Settings falls = read(synthetic, {{"schedule.tail", "warmup_stable_decay"},
                                          {"schedule.warmup_steps", "5"},
                                          {"schedule.decay_steps", "40"},
                                          {"training.steps", "20"}});
  EXPECT_HAS(summary(falls),
             "the learning rate falls in the 15 steps after the warm-up; "
             "decay_steps 40 are more\n");
  expect_equal(read(write_deck(falls)), falls);
  const Settings stays = read(synthetic, {{"schedule.tail", "warmup_stable_decay"}});
  EXPECT_HAS(summary(stays), "\n               the learning rate never falls: decay_steps is 0\n");
}

TEST(Strategy, TheSummarySaysWhatIsForOtherSettings) {
  const Settings settings = read(synthetic, {{"precision.loss_scale", "8"},
                                             {"training.outlier_window", "9"},
                                             {"optimizer.name", "sgd"},
                                             {"optimizer.momentum", "0"},
                                             {"optimizer.beta1", "0.8"},
                                             {"optimizer.epsilon", "1e-6"},
                                             {"optimizer.moments", "bf16"},
                                             {"optimizer.nesterov", "false"}});
  EXPECT_TRUE(is_idle(settings, "gather fp32 and reduce fp32: loss_scale")) << summary(settings);
  EXPECT_TRUE(is_idle(settings, "skip_outliers 0: outlier_window")) << summary(settings);
  EXPECT_TRUE(
      is_idle(read(synthetic, {{"memory.early_updates", "false"}}), "offload none: early_updates"));
  EXPECT_TRUE(is_idle(read(synthetic, {{"memory.early_updates", "false"},
                                       {"memory.offload", "optimizer"},
                                       {"parallel.pipeline", "2"}}),
                      "parallel.pipeline 2: early_updates"));
  EXPECT_TRUE(is_idle(read(synthetic, {{"checkpoint.async", "false"}}), "every 0: async"));
  EXPECT_TRUE(is_idle(settings, "name sgd: beta1, epsilon")) << summary(settings);
  EXPECT_TRUE(is_idle(settings, "momentum 0: nesterov, moments")) << summary(settings);
  const std::vector<Override> rotary = {{"model.rotary_base", "5e5"},
                                        {"model.rotary_factor", "8"},
                                        {"model.rotary_original_length", "64"},
                                        {"model.rotary_beta_fast", "16"},
                                        {"model.rotary_attention_factor", "1.5"}};
  EXPECT_TRUE(is_idle(read(synthetic, rotary),
                      "rotary_scaling none: rotary_factor, rotary_original_length, "
                      "rotary_beta_fast, rotary_attention_factor"));
  const auto with_rotary = [&](const char* key, const char* value) {
    std::vector<Override> all = rotary;
    all.emplace_back(key, value);
    return read(synthetic, all);
  };
  EXPECT_TRUE(is_idle(with_rotary("model.rotary_scaling", "linear"),
                      "rotary_scaling linear: rotary_original_length, rotary_beta_fast, "
                      "rotary_attention_factor"));
  EXPECT_TRUE(is_idle(with_rotary("model.rotary_scaling", "llama3"),
                      "rotary_scaling llama3: rotary_beta_fast, rotary_attention_factor"));
  EXPECT_LACKS(summary(with_rotary("model.rotary_scaling", "yarn")), "without effect");
  EXPECT_TRUE(is_idle(with_rotary("model.positions", "learned"),
                      "positions learned: rotary_base, rotary_factor, rotary_original_length, "
                      "rotary_beta_fast, rotary_attention_factor"));
  EXPECT_TRUE(is_idle(read(synthetic, {{"model.window_rotary_base", "5e5"}}),
                      "attention_window 0: window_rotary_base"));
  // Keys of each row are given, "section.key=value", and its line names those without effect.
  using Row = std::pair<std::vector<const char*>, const char*>;
  for (const auto& [given, line] : std::vector<Row>{
           {{"model.experts=4", "model.expert_layers=none", "model.router_scale=2"},
            "expert_layers none: experts, router_scale"},
           {{"model.expert_width=64", "model.expert_layers=first 2"},
            "experts 0: expert_layers, expert_width"},
           {{"model.experts=4", "model.expert_width=64", "model.ffn_width=128"},
            "expert_layers all and expert_width 64: ffn_width"},
           {{"model.query_key_norm_kind=layernorm"}, "query_key_norm false: query_key_norm_kind"},
           {{"model.attention_window=8", "model.window_layers=none"},
            "window_layers none: attention_window"},
           {{"model.rotary_layers=none", "model.rotary_base=5e5"},
            "rotary_layers none: rotary_base"},
           {{"model.attention_window=8", "model.window_layers=first 1",
             "model.rotary_layers=all but first 1", "model.window_rotary_base=5e5"},
            "window_layers first 1 and rotary_layers all but first 1: window_rotary_base"},
           {{"model.norm_bias=true"}, "norm rmsnorm and norm_weight plain: norm_bias"},
           {{"model.bias=true", "model.qkv_bias=false", "model.out_bias=false",
             "model.mlp_bias=false"},
            "qkv_bias false, out_bias false and mlp_bias false: bias"},
           {{"model.initializer_deviation=1", "checkpoint.initial_weights=/w"},
            "checkpoint.initial_weights /w: initializer_deviation"},
           {{"data.path=/t", "data.validation_path=/v"},
            "dataset synthetic: path, validation_path"},
           {{"data.dataset=tokens", "data.path=/t", "data.validation_path=/v"},
            "training.validate_every 0: validation_path"},
           {{"data.dataset=tokens", "data.path=/t", "data.synthetic_noise=0.5"},
            "dataset tokens: synthetic_noise"},
           {{"data.dataset=tokens", "data.path=/t", "data.document_positions=continue"},
            "documents continue: document_positions"},
           {{"data.reference=r"}, "training.objective next_token: reference"},
           {{"lora.alpha=8"}, "rank 0: alpha"},
           {{"training.dpo_beta=0.2"}, "objective next_token: dpo_beta"},
           {{"training.validation_batches=2"}, "validate_every 0: validation_batches"}}) {
    std::vector<Override> overrides;
    for (const char* one : given) overrides.push_back(parse_override(one));
    EXPECT_TRUE(is_idle(read(synthetic, overrides), line)) << line << "\n"
                                                           << summary(read(synthetic, overrides));
  }
  for (const std::vector<const char*>& given : std::vector<std::vector<const char*>>{
           {"model.experts=4", "model.expert_layers=first 1", "model.expert_width=64",
            "model.ffn_width=128"},
           {"model.norm=layernorm", "model.norm_bias=true"},
           {"lora.rank=2", "lora.alpha=8", "precision.frozen=gather"},
           {"optimizer.parameters=*norm*: frozen", "precision.frozen=gather"},
           {"model.bias=true", "model.qkv_bias=false", "model.out_bias=false"},
           {"model.attention_window=8", "model.window_layers=first 1",
            "model.window_rotary_base=5e5"}}) {
    std::vector<Override> overrides;
    for (const char* one : given) overrides.push_back(parse_override(one));
    EXPECT_LACKS(summary(read(synthetic, overrides)), "without effect");
  }
  for (const char* const rules : {"", "*norm*: learning_rate 1"}) {
    const std::string shown =
        summary(read(synthetic, {{"optimizer.parameters", rules}, {"precision.frozen", "gather"}}));
    EXPECT_HAS(shown, "               without effect as no parameter is frozen: frozen\n");
  }
  // This depends on the build, not on another key.
  const Settings pageable = read(synthetic, {{"memory.pinned", "false"}});
  EXPECT_EQ(summary(pageable).find("               without effect in a build without a device: "
                                   "pinned\n") == std::string::npos,
            on_device)
      << summary(pageable);
  const Settings one_by_one = read(synthetic, {{"runtime.graphs", "never"}});
  EXPECT_EQ(summary(one_by_one).find("without effect in a build without a device: graphs\n") ==
                std::string::npos,
            on_device)
      << summary(one_by_one);
  EXPECT_LACKS(summary(read(synthetic)), "without effect");
  const Settings others = read(synthetic, {{"precision.loss_scale", "8"},
                                           {"precision.gather", "fp16"},
                                           {"training.outlier_window", "9"},
                                           {"training.skip_outliers", "6"},
                                           {"checkpoint.async", "false"},
                                           {"checkpoint.every", "1"}});
  EXPECT_LACKS(summary(others), "without effect");
}

TEST(Strategy, RowsOfTheModelTellLayersAndActiveParameters) {
  using Rows = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ(model_rows(read(synthetic)), (Rows{{"layers", "4: rotary positions in all"}}));
  if (!on_device) {
    EXPECT_EQ(model_rows(read(synthetic, {{"precision.products", "fp8"}})),
              (Rows{{"layers", "4: rotary positions in all"},
                    {"products in 8 bits",
                     "those of linear layers in 2 of 4 blocks (all but the first and the last): "
                     "e4m3, gradients e5m2; a CPU rounds operands, and is no faster"}}));
    EXPECT_HAS(model_rows(read(synthetic, {{"precision.products", "mxfp8"}})).back().second,
               "e4m3, gradients e5m2, in blocks of 32; a CPU");
    EXPECT_HAS(model_rows(read(synthetic, {{"precision.products", "fp8"},
                                           {"precision.gather", "fp8"},
                                           {"parallel.sharding", "full"}}))
                   .back()
                   .second,
               "e5m2; their weights are gathered in 8 bits; a CPU");
  }
  const std::vector<Override> small = {
      {"model.positions", "learned"}, {"model.layers", "2"},      {"model.width", "8"},
      {"model.heads", "2"},           {"model.vocabulary", "10"}, {"training.sequence_length", "6"},
      {"model.experts", "4"},         {"model.expert_width", "3"}};
  // Norms, attention, the router, and of 4 experts 2, in each layer; the head's norm; the logits.
  const std::int64_t layer = 2 * 8 + 4 * 8 * 8 + 4 * 8 + 2 * (3 * 8 * 3), head = 8 + 10 * 8;
  EXPECT_EQ(model_rows(read(synthetic, small)),
            (Rows{{"layers", "2: 4 experts in all"},
                  {"active parameters", text(2 * layer + head,
                                             " for a token: of experts those of 2 of 4, and "
                                             "without 48 in tables that are looked up")}}));
  std::vector<Override> others = small;
  others.insert(others.end(), {{"model.positions", "rotary"},
                               {"model.rotary_layers", "1"},
                               {"model.attention_window", "3"},
                               {"model.window_layers", "none"},
                               {"model.tie_embeddings", "false"},
                               {"model.expert_layers", "first 1"},
                               {"model.ffn_width", "5"}});
  EXPECT_EQ(
      model_rows(read(synthetic, others)),
      (Rows{{"layers", "2: rotary positions in 1 (all but first 1), 4 experts in 1 (first 1)"},
            {"active parameters", text(2 * layer - 4 * 8 - 2 * (3 * 8 * 3) + 3 * 8 * 5 + head,
                                       " for a token: of experts those of 2 of 4, and "
                                       "without 80 in tables that are looked up")}}));
}

TEST(Strategy, TheSummarySaysWhereNoStepIsJudged) {
  for (const char* window : {"2", "3", "7", "40"}) {
    const std::int64_t unjudged = std::max(2, std::stoi(window) / 2);
    for (const std::int64_t steps : {unjudged, unjudged + 1}) {
      const Settings settings = read(synthetic, {{"training.skip_outliers", "1"},
                                                 {"training.outlier_window", window},
                                                 {"training.steps", std::to_string(steps)}});
      optim::OutlierFilter filter({settings.stability.outlier_window, 1.0});
      bool skips = false;
      for (std::int64_t step = 1; step <= steps; ++step)
        skips = filter.judge(step == steps ? 1e6 : 1.0, 1.0).skip;
      EXPECT_EQ(is_idle(settings,
                        text("steps ", steps, " and outlier_window ", window, ": skip_outliers")),
                !skips)
          << summary(settings);
    }
  }
}

TEST(Strategy, TheSummarySaysWhereMuonHasNoMatrices) {
  std::vector<Override> overrides = {
      {"optimizer.name", "muon"},      {"optimizer.momentum", "0.5"},
      {"optimizer.nesterov", "false"}, {"optimizer.muon_iterations", "4"},
      {"optimizer.beta1", "0.8"},      {"optimizer.muon_rate_factor", "2"}};
  EXPECT_LACKS(summary(read(synthetic, overrides)), "without effect");
  overrides.emplace_back("optimizer.parameters", "block.*: frozen; block.3.mlp.down.*: trained");
  const Settings some = read(synthetic, overrides);
  EXPECT_LACKS(summary(some), "without effect");
  overrides.back().second = "block.*.weight: frozen; *norm*: trained";
  const Settings none = read(synthetic, overrides);
  EXPECT_TRUE(is_idle(none,
                      "parameters block.*.weight: frozen; *norm*: trained: name, momentum, "
                      "nesterov, muon_iterations, muon_rate_factor"))
      << summary(none);
}

TEST(Strategy, TheSummarySaysWhatRulesSetForFrozenParametersOnly) {
  const auto idle = [](const std::string& rules) {
    const std::string shown = summary(read(synthetic, {{"optimizer.parameters", rules}}));
    const std::string begin = "               without effect on frozen parameters: ";
    const std::size_t at = shown.find(begin);
    if (at == std::string::npos) return std::string();
    return shown.substr(at + begin.size(), shown.find('\n', at) - at - begin.size());
  };
  EXPECT_EQ(idle("embedding.*: frozen; *: learning_rate 1"), "");
  EXPECT_EQ(idle("embedding.*: frozen, learning_rate 1; embedding.token.*: trained"), "");
  EXPECT_EQ(idle("embedding.*: frozen, learning_rate 1; *norm*: weight_decay 1"),
            "embedding.*: learning_rate 1");
  EXPECT_EQ(idle("block.1.*: weight_decay 0; block.0.*: learning_rate 1; "
                 "block.*: frozen; block.1.mlp.*: trained; block.2.*: learning_rate 2"),
            "block.0.*: learning_rate 1; block.2.*: learning_rate 2");
}

TEST(Strategy, GradientsAreSentNowhereInGroupsOfOneRank) {
  const Settings settings = read(synthetic, {{"precision.reduce", "bf16"}});
  for (const int ranks : {0, 1, 2}) {
    EXPECT_EQ(summary(settings, OnRanks{ranks})
                      .find("               without effect in shard groups of one "
                            "rank: reduce\n") != std::string::npos,
              ranks == 1);
    const plan::Setting last =
        strategy(settings, plan::Accumulation::reduce_last, OnRanks{ranks}).back();
    EXPECT_EQ(last.key, "reduce");
    EXPECT_EQ(last.has_effect, ranks != 1);
  }
  EXPECT_LACKS(summary(read(synthetic), OnRanks{1}), "without effect");
}

TEST(Strategy, TwoLevelsTakeGroupsWithSeveralRanksOnEachOfSeveralNodes) {
  const std::string line =
      "               without effect as no group has several ranks on each of several nodes: "
      "hierarchical_collectives\n";
  for (const char* value : {"always", "never", "3 MiB"}) {
    const Settings settings = read(synthetic, {{"parallel.hierarchical_collectives", value}});
    for (const bool may : {false, true}) {
      const OnRanks ranks{4, may};
      EXPECT_EQ(summary(settings, ranks).find(line) == std::string::npos, may) << value;
      bool is_there = false;
      for (const plan::Setting& one : strategy(settings, plan::Accumulation::shard_each, ranks)) {
        if (one.key != "hierarchical_collectives") continue;
        is_there = true;
        EXPECT_EQ(one.value, value);
        EXPECT_EQ(one.has_effect, may);
      }
      EXPECT_TRUE(is_there);
    }
  }
  EXPECT_LACKS(summary(read(synthetic), OnRanks{4, false}), "without effect");
}

TEST(Strategy, HasWhatChangesAStepInOtherSections) {
  const auto others = [](const std::vector<Override>& overrides) {
    std::string all;
    for (const plan::Setting& setting :
         strategy(read(synthetic, overrides), plan::Accumulation::reduce_last))
      all += setting.key + "=" + setting.value + "\n";
    return all.substr(all.find("blocks_per_unit=1\n") + 18);
  };
  EXPECT_EQ(others({}), "");
  EXPECT_EQ(others({{"precision.gather", "bf16"},
                    {"precision.reduce", "fp16"},
                    {"memory.activation_checkpointing", "selective attention mlp"},
                    {"optimizer.name", "lion"},
                    {"optimizer.moments", "bf16"}}),
            "gather=bf16\nreduce=fp16\nactivation_checkpointing=selective attention mlp\n"
            "optimizer=lion\nmoments=bf16\n");
  EXPECT_EQ(others({{"memory.activation_checkpointing", "every 2"},
                    {"optimizer.name", "sgd"},
                    {"optimizer.momentum", "0"},
                    {"optimizer.moments", "bf16"}}),
            "activation_checkpointing=every 2\noptimizer=sgd\n");
  EXPECT_EQ(others({{"memory.offload", "optimizer"},
                    {"memory.activations", "host"},
                    {"memory.pinned", "false"},
                    {"optimizer.name", "muon"},
                    {"optimizer.parameters", "embedding.*:frozen"}}),
            "memory.offload=optimizer\nmemory.activations=host\noptimizer=muon\n"
            "optimizer.parameters=embedding.*: frozen\n");
}

TEST(Strategy, OneLineNamesAllThatHasNoEffect) {
  std::vector<Override> overrides = of_gathers;
  EXPECT_LACKS(summary(read(synthetic, overrides)), "without effect");
  overrides.emplace_back("parallel.sharding", "optimizer");
  const std::string shown = summary(read(synthetic, overrides));
  EXPECT_HAS(shown,
             "\n               without effect with sharding optimizer: "
             "reshard_after_forward, forward_prefetch, backward_prefetch, "
             "in_flight_gathers, units\n  precision");
}

TEST(Strategy, HasTheValuesOfADeckAndTheAccumulationOfThePlan) {
  const Settings settings = read(synthetic, {{"parallel.units", "head: forward_prefetch 2"},
                                             {"parallel.in_flight_gathers", "8 GiB"},
                                             {"parallel.shard_group", "node"},
                                             {"model.blocks_per_unit", "auto"}});
  std::string all;
  for (const plan::Setting& setting : strategy(settings, plan::Accumulation::shard_each))
    all += setting.key + "=" + setting.value + "\n";
  EXPECT_EQ(all,
            "sharding=full\nshard_group=node\ncontext=1\npipeline=1\nschedule=1f1b\n"
            "zero_bubble_memory=as_1f1b\n"
            "pipeline_chunks=1\npipeline_units=auto\nexpert=1\nexpert_capacity=1.25\ntensor=1\n"
            "tensor_chunks=1\n"
            "rank_order=tensor_in_"
            "node\nshard_optimizer_over=shard_group\n"
            "accumulation=shard_each\nleaf_order=ascending\nreshard_after_forward=default\n"
            "forward_prefetch=1\nbackward_prefetch=1\nin_flight_gathers=8 GiB\n"
            "in_flight_reductions=1\nunits=head: forward_prefetch "
            "2\nupdates=careful\nblocks_per_unit=auto\n");
}

TEST(Strategy, KeysOfExpertsHaveNoEffectWithoutThem) {
  const std::vector<Override> keys = {
      {"experts_per_token", "3"},    {"shared_experts", "1"},      {"expert_width", "8"},
      {"router_score", "sigmoid"},   {"router_scale", "2"},        {"router_normalize", "false"},
      {"router_balance", "loss"},    {"router_balance_rate", "1"}, {"router_bias", "true"},
      {"router_group_score", "max"}, {"shared_gate", "true"},      {"shared_expert_width", "8"},
      {"expert_layers", "first 1"}};
  for (const Override& one : keys)
    EXPECT_TRUE(
        is_idle(read(synthetic, {{"model." + one.first, one.second}}), "experts 0: " + one.first))
        << one.first;
  EXPECT_TRUE(is_idle(read(synthetic, {{"model.experts", "4"}, {"model.router_balance_rate", "1"}}),
                      "router_balance none: router_balance_rate"));
  for (const Override& one :
       {Override{"shared_gate", "true"}, Override{"shared_expert_width", "8"}})
    EXPECT_TRUE(
        is_idle(read(synthetic, {{"model.experts", "4"}, {"model." + one.first, one.second}}),
                "shared_experts 0: " + one.first));
  EXPECT_TRUE(
      is_idle(read(synthetic, {{"model.experts", "4"}, {"model.router_group_score", "max"}}),
              "router_groups 1 and router_groups_per_token 1: router_group_score"));
  EXPECT_TRUE(is_idle(read(synthetic, {{"parallel.zero_bubble_memory", "unlimited"}}),
                      "schedule 1f1b: zero_bubble_memory"));
  EXPECT_TRUE(
      is_idle(read(synthetic, {{"parallel.expert_capacity", "2"}}), "expert 1: expert_capacity"));
  // Here experts are separate units.
  EXPECT_FALSE(is_idle(read(synthetic, {{"parallel.expert_capacity", "2"},
                                        {"model.experts", "4"},
                                        {"model.tensor_grain", "2"}}),
                       "expert 1: expert_capacity"));
}

}  // namespace
}  // namespace ostrakon::config
