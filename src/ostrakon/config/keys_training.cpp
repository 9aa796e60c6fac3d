// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/config/key_kinds.hpp>
#include <ostrakon/config/keys.hpp>
#include <ostrakon/config/policy_text.hpp>

namespace ostrakon::config {
namespace {

constexpr std::int64_t most_muon_iterations = 1000;

#define FIELD(member) \
  [](auto& settings) -> auto& { return settings.member; }

/// Returns all optimizers except `sign`, which only single parameters use.
std::vector<Named<optim::OptimizerKind>> optimizers_of_models() {
  std::vector<Named<optim::OptimizerKind>> kinds;
  for (const Named<optim::OptimizerKind>& one : optim::optimizer_names)
    if (one.value != optim::OptimizerKind::sign) kinds.push_back(one);
  return kinds;
}

}  // namespace

Section data_section() {
  return {
      "data",
      "what the model is trained on",
      {choice("dataset", FIELD(data.dataset), data::dataset_names,
              "tokens: a token file; synthetic: a seeded random process, without files"),
       files(
           "path", FIELD(data.path),
           "token file of the training data, or several with weights, which are the samples drawn "
           "from each, relative to the others: \"0.7 web.h5; 0.3 code.h5\", or a list of such. "
           "Required if dataset is tokens"),
       path("validation_path", FIELD(data.validation_path), true,
            "token file of the validation data; empty: no validation"),
       boolean("verify", FIELD(data.verify), "check the checksums of token files before training"),
       choice("documents", FIELD(data.documents), data::documents_names,
              "continue: a sample is consecutive tokens, in which one document follows the other; "
              "separate: a sample has whole documents, which do not see each other in attention"),
       choice("document_positions", FIELD(data.restart_positions), data::document_positions_names,
              "of separate documents: restart: those of each begin at 0; continue: they are those "
              "of the sample"),
       path("reference", FIELD(data.reference), true,
            "for training.objective = dpo: prefix of the files that keep the reference's "
            "log-probabilities of all pairs, PREFIX-train.h5 and PREFIX-validation.h5. They are "
            "computed with the weights that the run begins with, unless they are there; empty: "
            "reference in output.directory"),
       number("synthetic_noise", FIELD(data.synthetic_noise), share,
              "share of random tokens; for synthetic only")}};
}

Section training_section() {
  return {
      "training",
      "length, batch sizes, and handling of non-finite and outlying steps",
      {integer("steps", FIELD(training.steps), 1, "optimizer steps of the run"),
       choice("objective", FIELD(data.objective), data::objective_names,
              "next_token: to predict each token; dpo: to prefer the chosen one of two answers, by "
              "direct preference optimization. A sequence is a pair of answers then, one behind "
              "the other, which do not see each other"),
       number("dpo_beta", FIELD(training.dpo_beta), positive,
              "beta of dpo: how much the model is kept near the reference, which it began as"),
       integer("global_batch_size", FIELD(training.global_batch_size), 1,
               "sequences in a step, over all ranks"),
       integer("micro_batch_size", FIELD(training.micro_batch_size), 1,
               "sequences that a rank computes at once. Each rank computes global_batch_size / "
               "micro_batch_size / ranks micro-batches in a step: gradient accumulation"),
       choice("leaf", FIELD(training.leaf), leaf_names,
              "whose gradients are summed by themselves, before the sums are added in a fixed "
              "order: micro_batch, then micro_batch_size changes the bits of results; or sequence, "
              "then it is a matter of speed and memory alone"),
       power_of_two("context_grain", FIELD(training.context_grain), 1,
                    "number of pieces of each sequence whose gradients are summed by themselves. "
                    "With every parallel.context that divides it results have the same bits; "
                    "another number is equal up to rounding. 1: sequences are cut only where "
                    "parallel.context divides them"),
       power_of_two("sum_grain", FIELD(training.sum_grain), 0,
                    "number of leaves whose gradients are summed by one binary tree; the sums of "
                    "several trees are accumulated in order. A small number keeps fewer partial "
                    "sums over many micro-batches. Results with another number agree to rounding. "
                    "Before step 1 a run says whether its sums are bitwise equal to 1 rank. 0: one "
                    "tree over all leaves"),
       integer("sequence_length", FIELD(training.sequence_length), 1, "tokens in a sequence"),
       integer("seed", FIELD(training.seed), 0,
               "seed of initial weights, sample order and synthetic data"),
       number("label_smoothing", FIELD(training.label_smoothing), share,
              "share of each target that is spread evenly over the vocabulary in the loss that is "
              "trained, as in PyTorch's cross_entropy; validations have none"),
       number("z_loss", FIELD(training.z_loss), up_to_1e30,
              "factor of the mean of squared logs of the sums of e^logit, which is added to the "
              "loss that is trained and keeps logits small, as in PaLM (1e-4); validations have "
              "none"),
       number("ema", FIELD(ema), below_one,
              "decay of the exponential moving average of parameters, which is kept and saved "
              "besides them, such as 0.999; 0: none"),
       integer("validate_every", FIELD(training.validate_every), 0,
               "steps between validations; 0: none"),
       integer("validation_batches", FIELD(training.validation_batches), 1,
               "global batches in one validation"),
       boolean("validate_ema", FIELD(training.validate_ema),
               "whether validations also measure the loss of the averages that training.ema keeps"),
       path("evaluate", FIELD(training.evaluate), true,
            "questions with choices, a line of JSON each, as ostrakon-evaluate --choices reads "
            "them: a file, or a folder, of which all files that end with .jsonl; empty: none"),
       integer("evaluate_every", FIELD(training.evaluate_every), 0,
               "steps between answers to the questions of training.evaluate; 0: none"),
       number("time_limit_minutes", FIELD(training.time_limit_minutes), not_negative,
              "minutes of training in this job after which it ends as after the last step: "
              "weights.h5 is written, the exit status is 0. 0: no limit. To save and resume before "
              "a batch job's limit see runtime.wall_time"),
       choice("on_non_finite", FIELD(stability.skip_non_finite),
              std::vector<Named<bool>>{{false, "stop"}, {true, "skip"}},
              "if loss or gradient are not finite: stop the run with an error, or skip the update; "
              "a run whose last three steps were all skipped ends with status 1"),
       number("skip_outliers", FIELD(stability.outlier_threshold), not_negative,
              "skip the update of a step whose loss or gradient norm is more than this number of "
              "standard deviations above its running mean; 0: skip none"),
       integer("outlier_window", FIELD(stability.outlier_window), 2,
               "window of the running mean of skip_outliers, in steps; none is skipped in the "
               "first half of it")}};
}

Section optimizer_section() {
  return {
      "optimizer",
      "how parameters are updated",
      {choice("name", FIELD(optimizer.kind), optimizers_of_models(),
              "update rule, with decoupled weight decay. muon updates the matrices within blocks, "
              "and adamw all other parameters"),
       number("learning_rate", FIELD(optimizer.learning_rate), up_to_1e30,
              "peak of the learning rate; section schedule is relative to it"),
       number("weight_decay", FIELD(optimizer.weight_decay), up_to_1e30,
              "weight decay of matrices and embeddings. Norms and biases have none, unless a rule "
              "in optimizer.parameters sets it"),
       number("beta1", FIELD(optimizer.beta1), below_one,
              "adamw (in muon too): decay of the first moment; lion: weight of the moment against "
              "the gradient in the update, which is the sign of their weighted sum"),
       number("beta2", FIELD(optimizer.beta2), below_one,
              "adamw (in muon too): decay of the second moment; lion: decay of its moment, usually "
              "0.99"),
       number("epsilon", FIELD(optimizer.epsilon), small,
              "adamw (in muon too): epsilon added to the root of the second moment"),
       number("momentum", FIELD(optimizer.momentum), below_one,
              "sgd and muon: momentum; 0: none, and sgd then keeps no state"),
       boolean("nesterov", FIELD(optimizer.nesterov), "sgd and muon: Nesterov momentum"),
       integer("muon_iterations", FIELD(optimizer.muon_iterations), 1, most_muon_iterations,
               "muon only: Newton-Schulz iterations that orthogonalize a matrix"),
       number(
           "muon_rate_factor", FIELD(optimizer.muon_rate_factor), positive,
           "muon only: learning rate of the matrices, as a multiple of that of other parameters"),
       choice("moments", FIELD(parallel.moments.dtype),
              std::vector<Named<DType>>{{DType::fp32, name(DType::fp32)},
                                        {DType::bf16, name(DType::bf16)}},
              "dtype of the optimizer's moments; bf16 is rounded stochastically"),
       number("clip_norm", FIELD(optimizer.clip_norm), up_to_1e30,
              "norm to which the gradient of the whole model is clipped; 0: no clipping"),
       rules("parameters", FIELD(optimizer.parameters), read_parameter_rules, write_parameter_rules,
             "rules for parameters by full name, in which * stands for any text. If several rules "
             "set the same for a parameter, the last applies. A rule sets one or more of frozen "
             "(never updated), trained (undoes an earlier frozen), learning_rate (its peak) and "
             "weight_decay. Example: \"embedding.*: frozen; *.norm.*: learning_rate 1e-4, "
             "weight_decay 0.01\"")}};
}

Section schedule_section() {
  return {"schedule",
          "learning rate over the steps, as a fraction of its peak",
          {integer("warmup_steps", FIELD(schedule.warmup_steps), 0,
                   "first steps, in which the learning rate rises linearly to its peak"),
           choice("tail", FIELD(schedule.tail), optim::tail_names,
                  "learning rate after the warm-up. warmup_stable_decay: constant, then falling "
                  "linearly over decay_steps; inverse_square_root: as 1 / sqrt(step)"),
           number("final_fraction", FIELD(schedule.final_fraction), share,
                  "learning rate of the last step, as a fraction of its peak; for cosine, linear "
                  "and warmup_stable_decay"),
           integer("decay_steps", FIELD(schedule.decay_steps), 0,
                   "last steps, in which the learning rate of warmup_stable_decay falls; 0: "
                   "never")}};
}

#undef FIELD

}  // namespace ostrakon::config
