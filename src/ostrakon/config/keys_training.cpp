// SPDX-License-Identifier: Apache-2.0
#include <limits>
#include <ostrakon/config/key_kinds.hpp>
#include <ostrakon/config/key_sections.hpp>
#include <ostrakon/config/rule_text.hpp>

namespace ostrakon::config {
namespace {

// Bounds that keep every product of two of them, and every matrix library's 32-bit sizes, in range.
constexpr std::int64_t most_columns = std::int64_t{1} << 26;
constexpr std::int64_t most_layers = 100000;
constexpr std::int64_t most_tokens = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t most_muon_iterations = 1000;

#define FIELD(member) \
  [](auto& settings) -> auto& { return settings.member; }

Key sum_grain() {
  Key key;
  key.name = "sum_grain";
  key.meaning =
      "leaves (micro-batches of the global batch) whose gradients are summed by one tree; the sums "
      "of trees are accumulated in order. "
      "Fewer partial sums are kept over many micro-batches, with the same bits on any power of two "
      "of ranks. Determines the bits. 0: one tree over all leaves";
  constexpr std::int64_t largest = std::int64_t{1} << 30;
  key.expected = text("0 or a power of two up to ", largest);
  key.limits = "0 | power of two";
  key.set = [](Settings& settings, const Value& value) {
    const std::optional<std::int64_t> number = value.integer(0, largest);
    if (!number || (*number & (*number - 1)) != 0) return false;
    settings.training.sum_grain = *number;
    return true;
  };
  key.get = [](const Settings& settings) {
    return Value::of(static_cast<double>(settings.training.sum_grain));
  };
  return key;
}

}  // namespace

Section model_section() {
  return {
      "model",
      "what is computed: a decoder-only transformer",
      {choice("norm", FIELD(model.norm), math::norm_names, "before attention, MLP and output"),
       choice("positions", FIELD(model.positions), model::positions_names, "positional encoding"),
       choice("activation", FIELD(model.activation), model::activation_names, "of the MLP"),
       integer("layers", FIELD(model.layers), 1, most_layers, "transformer blocks"),
       named_integer("blocks_per_unit", FIELD(model.blocks_per_unit), {{"auto", 0}}, 1, most_layers,
                     "blocks that are gathered together, as one unit"),
       integer("width", FIELD(model.width), 1, most_columns, "of the residual stream"),
       integer("heads", FIELD(model.heads), 1, most_columns, "of attention"),
       integer("kv_heads", FIELD(model.kv_heads), 0, most_columns,
               "heads of keys and values; 0: as many as heads"),
       integer("ffn_width", FIELD(model.ffn_width), 0, most_columns,
               "of the MLP; 0: 4 width, or for swiglu 8/3 width, rounded up to a multiple of 64"),
       integer("vocabulary", FIELD(model.vocabulary), 2, most_tokens,
               "number of tokens; bytes: 257"),
       boolean("bias", FIELD(model.bias), "in linear layers and norms"),
       boolean("tie_embeddings", FIELD(model.tie_embeddings),
               "input embedding and output projection are tied parameters"),
       number("norm_epsilon", FIELD(model.norm_epsilon), small,
              "epsilon that norms add to the variance"),
       number("rotary_base", FIELD(model.rotary_base), rotary_base,
              "of rotary positional encoding"),
       number("initializer_deviation", FIELD(model.initializer_deviation), positive,
              "standard deviation of initial weights")}};
}

Section data_section() {
  return {"data",
          "what is learned",
          {choice("dataset", FIELD(data.dataset), data::dataset_names,
                  "a token file, or a seeded process"),
           path("path", FIELD(data.path), true, "token file; for tokens only"),
           path("validation_path", FIELD(data.validation_path), true,
                "token file; empty: no validation"),
           boolean("verify", FIELD(data.verify), "check files' checksums before training"),
           number("synthetic_noise", FIELD(data.synthetic_noise), share,
                  "share of random tokens; for synthetic only")}};
}

Section training_section() {
  return {"training",
          "length, batch sizes, and handling of non-finite and outlying steps",
          {integer("steps", FIELD(training.steps), 1, "optimizer steps"),
           integer("global_batch_size", FIELD(training.global_batch_size), 1,
                   "sequences in a step, over all ranks"),
           integer("micro_batch_size", FIELD(training.micro_batch_size), 1,
                   "sequences computed at once on a rank: a leaf"),
           sum_grain(), integer("sequence_length", FIELD(training.sequence_length), 1, "tokens"),
           integer("seed", FIELD(training.seed), 0, "of initial weights and sample order"),
           integer("validate_every", FIELD(training.validate_every), 0, "steps; 0: never"),
           integer("validation_batches", FIELD(training.validation_batches), 1,
                   "global batches in one validation"),
           number("time_limit_minutes", FIELD(training.time_limit_minutes), not_negative,
                  "end the run after this time, as after its last step; 0: no limit"),
           choice("on_non_finite", FIELD(stability.skip_non_finite),
                  std::vector<Named<bool>>{{false, "stop"}, {true, "skip"}},
                  "where loss or gradient are not finite: end the run, or skip the update"),
           number("skip_outliers", FIELD(stability.outlier_threshold), not_negative,
                  "deviations above the mean of loss or gradient norm from which a step's update "
                  "is skipped; 0: none is"),
           integer("outlier_window", FIELD(stability.outlier_window), 2,
                   "window of that running mean, in steps")}};
}

Section optimizer_section() {
  return {
      "optimizer",
      "how parameters are updated",
      {choice("name", FIELD(optimizer.kind), optim::optimizer_names,
              "all with decoupled weight decay; muon is for the matrices of blocks, all others are "
              "updated by adamw"),
       number("learning_rate", FIELD(optimizer.learning_rate), up_to_1e30, "at its peak"),
       number("weight_decay", FIELD(optimizer.weight_decay), up_to_1e30,
              "of matrices; norms and biases never decay"),
       number("beta1", FIELD(optimizer.beta1), below_one,
              "adamw (in muon too): decay of the first moment; lion: of it within the sign"),
       number(
           "beta2", FIELD(optimizer.beta2), below_one,
           "adamw (in muon too): decay of the second moment; lion: of its only one, there usually "
           "0.99"),
       number("epsilon", FIELD(optimizer.epsilon), small,
              "adamw (in muon too): epsilon added to the root of the second moment"),
       number("momentum", FIELD(optimizer.momentum), below_one,
              "sgd and muon: momentum; 0: none, for sgd without state"),
       boolean("nesterov", FIELD(optimizer.nesterov), "sgd and muon: Nesterov momentum"),
       integer("muon_iterations", FIELD(optimizer.muon_iterations), 1, most_muon_iterations,
               "muon only: Newton-Schulz iterations that orthogonalize a matrix"),
       number("muon_rate_factor", FIELD(optimizer.muon_rate_factor), positive,
              "muon only: the learning rate of its matrices over that of others"),
       choice("moments", FIELD(parallel.moments.dtype),
              std::vector<Named<DType>>{{DType::fp32, name(DType::fp32)},
                                        {DType::bf16, name(DType::bf16)}},
              "dtype of optimizer state; bf16 with stochastic rounding"),
       number("clip_norm", FIELD(optimizer.clip_norm), up_to_1e30,
              "largest norm of the whole gradient; 0: no clipping"),
       rules("parameters", FIELD(optimizer.parameters), read_parameter_rules, write_parameter_rules,
             "rules for parameters by full name, in which * stands for any text; of those that "
             "match and set the same, the last applies. Each sets one or more of frozen (never "
             "updated), trained (not frozen after all), learning_rate (at its peak) and "
             "weight_decay. Such as \"embedding.*: frozen; *.norm.*: learning_rate 1e-4, "
             "weight_decay 0.01\"")}};
}

Section schedule_section() {
  return {"schedule",
          "the learning rate over time",
          {integer("warmup_steps", FIELD(schedule.warmup_steps), 0, "steps of linear rise"),
           choice("tail", FIELD(schedule.tail), optim::tail_names,
                  "after the warm-up. warmup_stable_decay: constant, then linear; "
                  "inverse_square_root: as 1 / sqrt(step)"),
           number("final_fraction", FIELD(schedule.final_fraction), share,
                  "of the peak, at the last step; of cosine, linear and warmup_stable_decay"),
           integer("decay_steps", FIELD(schedule.decay_steps), 0,
                   "last steps, in which warmup_stable_decay falls")}};
}

#undef FIELD

}  // namespace ostrakon::config
