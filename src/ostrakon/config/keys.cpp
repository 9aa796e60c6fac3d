// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <iterator>
#include <limits>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/names.hpp>
#include <ostrakon/config/keys.hpp>
#include <ostrakon/config/nearest.hpp>
#include <ostrakon/config/policy_text.hpp>
#include <ostrakon/config/wall_time.hpp>
#include <stdexcept>
#include <type_traits>
#include <utility>

namespace ostrakon::config {
namespace {

// ------------------------------------------------------------------- kinds of keys

/// `field` is a generic lambda that gives the field of a Settings or const Settings.
template <class Field>
Key integer(const std::string& name, Field field, std::int64_t least, std::int64_t most,
            const std::string& meaning) {
  Key key;
  key.name = name;
  key.meaning = meaning;
  key.expected = most == largest_integer ? text("an integer >= ", least)
                                         : text("an integer from ", least, " to ", most);
  key.limits = text(">= ", least);
  key.is_open_integer = most == largest_integer;
  key.set = [=](Settings& settings, const Value& value) {
    const std::optional<std::int64_t> number = value.integer(least, most);
    if (!number) return false;
    field(settings) = static_cast<std::decay_t<decltype(field(settings))>>(*number);
    return true;
  };
  key.get = [=](const Settings& settings) {
    return Value::of(static_cast<double>(field(settings)));
  };
  return key;
}

template <class Field>
Key integer(const std::string& name, Field field, std::int64_t least, const std::string& meaning) {
  return integer(name, field, least, largest_integer, meaning);
}

/// The numbers that a key takes, and how to say so.
struct Range {
  const char* limits;
  bool (*contains)(double);
};
const Range not_negative = {">= 0", [](double x) { return x >= 0.0; }};
const Range share = {"from 0 to 1", [](double x) { return x >= 0.0 && x <= 1.0; }};
// Decks hold doubles, most arithmetic is in floats: within these bounds no float becomes infinite,
// nor zero where it is there to keep something from being zero (floats below 1.18e-38 are not
// normal, and some processors take them for zero).
const Range up_to_1e30 = {"from 0 to 1e30", [](double x) { return x >= 0.0 && x <= 1e30; }};
const Range positive = {"from 1e-30 to 1e30", [](double x) { return x >= 1e-30 && x <= 1e30; }};
const Range small = {"from 1.2e-38 to 1", [](double x) { return x >= 1.2e-38 && x <= 1.0; }};
const Range rotary_base = {"from 1 to 1e12", [](double x) { return x >= 1.0 && x <= 1e12; }};
const Range below_one = {">= 0 and < 1", [](double x) { return x >= 0.0 && x < 1.0; }};

template <class Field>
Key number(const std::string& name, Field field, const Range& range, const std::string& meaning) {
  Key key;
  key.name = name;
  key.meaning = meaning;
  key.expected = text("a number ", range.limits);
  key.limits = range.limits;
  key.set = [=](Settings& settings, const Value& value) {
    if (value.kind != Value::Kind::number || !std::isfinite(value.number) ||
        !range.contains(value.number)) {
      return false;
    }
    field(settings) = value.number;
    return true;
  };
  key.get = [=](const Settings& settings) { return Value::of(field(settings)); };
  return key;
}

template <class Field>
Key boolean(const std::string& name, Field field, const std::string& meaning) {
  Key key;
  key.name = name;
  key.meaning = meaning;
  key.expected = "true or false";
  key.set = [=](Settings& settings, const Value& value) {
    if (value.kind != Value::Kind::boolean) return false;
    field(settings) = value.boolean;
    return true;
  };
  key.get = [=](const Settings& settings) { return Value::of(field(settings)); };
  return key;
}

/// No file system forbids them, but they spoil what is printed and written line by line.
void require_no_control_characters(const std::string& text) {
  for (std::size_t at = 0; at < text.size(); ++at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    require(byte >= 0x20 && byte != 0x7F, shown(text), " has the control character ",
            printable(text.substr(at, 1)), " at byte ", at + 1, "; expected text without any");
  }
}

template <class Field>
Key path(const std::string& name, Field field, bool may_be_empty, const std::string& meaning) {
  Key key;
  key.name = name;
  key.meaning = meaning;
  key.expected = may_be_empty ? "a path as text (numbers and yes/no need quotes)"
                              : "a path that is not empty (numbers and yes/no need quotes)";
  key.set = [=](Settings& settings, const Value& value) {
    if (value.kind != Value::Kind::text) return false;
    if (value.text.empty() && !may_be_empty) return false;
    require_no_control_characters(value.text);
    field(settings) = value.text;
    return true;
  };
  key.get = [=](const Settings& settings) { return Value::of(field(settings)); };
  key.is_text = true;
  key.path = [=](Settings& settings) -> std::string& { return field(settings); };
  return key;
}

template <class Field, class Choice>
Key choice(const std::string& name, Field field, const std::vector<Named<Choice>>& choices,
           const std::string& meaning) {
  std::vector<std::string> names;
  for (const auto& one : choices) names.push_back(one.name);
  Key key;
  key.name = name;
  key.meaning = meaning;
  key.expected = join(names, ", ", " or ");
  key.limits = join(names, " | ", " | ");
  key.set = [=](Settings& settings, const Value& value) {
    if (value.kind != Value::Kind::text) return false;
    for (const auto& one : choices) {
      if (one.name != value.text) continue;
      field(settings) = one.value;
      return true;
    }
    return false;
  };
  key.get = [=](const Settings& settings) {
    for (const auto& one : choices) {
      if (one.value == field(settings)) return Value::of(std::string(one.name));
    }
    throw std::logic_error(name + " has a value without a name");
  };
  return key;
}

/// All that a table names, in its order.
template <class Field, class Enum, std::size_t count>
Key choice(const std::string& name, Field field, const Named<Enum> (&names)[count],
           const std::string& meaning) {
  return choice(name, field, std::vector<Named<Enum>>(std::begin(names), std::end(names)), meaning);
}

using NamedIntegers = std::vector<std::pair<std::string, int>>;

/// An integer, some values of which, outside the bounds, have names.
template <class Field>
Key named_integer(const std::string& name, Field field, const NamedIntegers& named,
                  std::int64_t least, std::int64_t most, const std::string& meaning) {
  std::vector<std::string> names;
  for (const auto& one : named) names.push_back(one.first);
  Key key;
  key.name = name;
  key.meaning = meaning;
  key.expected = text(join(names, ", ", ", "), " or an integer from ", least, " to ", most);
  key.limits = text(join(names, " | ", " | "), " | >= ", least);
  key.set = [=](Settings& settings, const Value& value) {
    using Type = std::decay_t<decltype(field(settings))>;
    if (const auto number = value.integer(least, most)) {
      field(settings) = static_cast<Type>(*number);
      return true;
    }
    for (const auto& one : named) {
      if (value.kind != Value::Kind::text || value.text != one.first) continue;
      field(settings) = one.second;
      return true;
    }
    return false;
  };
  key.get = [=](const Settings& settings) {
    for (const auto& one : named) {
      if (one.second == field(settings)) return Value::of(one.first);
    }
    return Value::of(static_cast<double>(field(settings)));
  };
  return key;
}

/// A key that other versions give more values: here it takes one.
Key only(const std::string& name, const std::string& accepted, const std::string& meaning) {
  Key key;
  key.name = name;
  key.meaning = meaning;
  key.expected = accepted + ", the one value that this version accepts";
  key.limits = accepted + " only";
  key.set = [=](Settings&, const Value& value) {
    return value.kind == Value::Kind::text && value.text == accepted;
  };
  key.get = [=](const Settings&) { return Value::of(accepted); };
  return key;
}

// ------------------------------------------------------------------------- the table

// Bounds that keep every product of two of them, and every matrix library's 32-bit sizes, in range.
constexpr std::int64_t most_columns = std::int64_t{1} << 26;
constexpr std::int64_t most_layers = 100000;
constexpr std::int64_t most_tokens = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t most_muon_iterations = 1000;

#define FIELD(member) \
  [](auto& settings) -> auto& { return settings.member; }

Section model_section() {
  return {
      "model",
      "what is computed: a decoder-only transformer",
      {choice("norm", FIELD(model.norm), math::norm_names, "before attention, MLP and output"),
       choice("positions", FIELD(model.positions), model::positions_names,
              "how a token knows its place"),
       choice("activation", FIELD(model.activation), model::activation_names, "of the MLP"),
       integer("layers", FIELD(model.layers), 1, most_layers, "transformer blocks"),
       named_integer("blocks_per_unit", FIELD(model.blocks_per_unit), {{"auto", 0}}, 1, most_layers,
                     "gathered together"),
       integer("width", FIELD(model.width), 1, most_columns, "of the residual stream"),
       integer("heads", FIELD(model.heads), 1, most_columns, "of attention"),
       integer("kv_heads", FIELD(model.kv_heads), 0, most_columns,
               "heads of keys and values; 0: as many as heads"),
       integer("ffn_width", FIELD(model.ffn_width), 0, most_columns,
               "of the MLP; 0: 4 width, or for swiglu 8/3 width in 64s"),
       integer("vocabulary", FIELD(model.vocabulary), 2, most_tokens,
               "number of tokens; bytes: 257"),
       boolean("bias", FIELD(model.bias), "in linear layers and norms"),
       boolean("tie_embeddings", FIELD(model.tie_embeddings), "one matrix for tokens in and out"),
       number("norm_epsilon", FIELD(model.norm_epsilon), small,
              "keeps norms from dividing by zero"),
       number("rotary_base", FIELD(model.rotary_base), rotary_base, "for rotary positions"),
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

Key sum_grain() {
  Key key;
  key.name = "sum_grain";
  key.meaning =
      "leaves whose gradients are summed by a tree; the trees' sums are added one after the other. "
      "Fewer partial sums are kept over many micro-batches, with the same bits on any power of two "
      "of ranks. It decides the bits. 0: one tree over all leaves";
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

Section training_section() {
  return {"training",
          "how long, in which portions, and what is done about steps that go wrong",
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
                  "stop in good order after this long; 0: no limit"),
           choice("on_non_finite", FIELD(stability.skip_non_finite),
                  std::vector<Named<bool>>{{false, "stop"}, {true, "skip"}},
                  "where loss or gradient are not finite: end the run, or leave out the update"),
           number("skip_outliers", FIELD(stability.outlier_threshold), not_negative,
                  "deviations above the mean of loss or gradient norm from which a step's update "
                  "is left out; 0: none is"),
           integer("outlier_window", FIELD(stability.outlier_window), 2,
                   "steps that this mean looks back over, about")}};
}

Key reshard() {
  Key key;
  key.name = "reshard_after_forward";
  key.meaning =
      "full only: what stays of a unit's gathered parameters until its backward. always: nothing; "
      "default: nothing, but where they would be gathered again at once; never: all of them; N: "
      "one part in N on each rank";
  key.expected = expected_reshard();
  key.limits = "default | always | never | N";
  key.set = [](Settings& settings, const Value& value) {
    const auto read = read_reshard(value);
    if (read) settings.parallel.reshard_after_forward = *read;
    return read.has_value();
  };
  key.get = [](const Settings& settings) {
    return write_reshard(settings.parallel.reshard_after_forward);
  };
  return key;
}

Key gather_limit() {
  Key key;
  key.name = "in_flight_gathers";
  key.meaning =
      "full only: most parameters that are gathered and not yet released, as a number of units "
      "(such as 2) or bytes (such as 8 GiB)";
  key.expected = expected_gather_limit();
  key.limits = "unlimited | >= 1 | bytes";
  key.set = [](Settings& settings, const Value& value) {
    const auto read = read_gather_limit(value);
    if (read) settings.parallel.in_flight_gathers = *read;
    return read.has_value();
  };
  key.get = [](const Settings& settings) {
    return write_gather_limit(settings.parallel.in_flight_gathers);
  };
  return key;
}

/// Rules may stand on several lines: what separates lines and words counts as a blank.
std::string on_one_line(std::string rules) {
  for (char& c : rules)
    if (c == '\n' || c == '\r' || c == '\t') c = ' ';
  return rules;
}

/// A key of rules, which `read` reads and `write` writes.
template <class Field, class Rules>
Key rules(const std::string& name, Field field, Rules (*read)(const std::string&),
          std::string (*write)(const Rules&), const std::string& meaning) {
  Key key;
  key.name = name;
  key.meaning = meaning;
  key.expected = "rules PATTERN: SETTING VALUE, SETTING VALUE ..., separated by ';', as text";
  key.is_text = true;
  key.set = [=](Settings& settings, const Value& value) {
    const std::string text = on_one_line(value.text);
    if (value.kind != Value::Kind::text) return false;
    require_no_control_characters(text);
    field(settings) = read(text);
    return true;
  };
  key.get = [=](const Settings& settings) { return Value::of(write(field(settings))); };
  return key;
}

Key loss_scale() {
  Key key;
  key.name = "loss_scale";
  key.meaning =
      "gather or reduce fp16 only: what the loss is multiplied with at first, so that small "
      "gradients do not "
      "vanish; halves on a step whose gradient overflows, which is left out, and doubles again";
  constexpr double largest = 16777216.0;
  key.expected = text("a power of two from 1 to ", format_number(largest));
  key.limits = text("power of two, 1 to ", format_number(largest));
  key.set = [](Settings& settings, const Value& value) {
    int exponent = 0;
    if (value.kind != Value::Kind::number || !(value.number >= 1.0) || value.number > largest ||
        std::frexp(value.number, &exponent) != 0.5) {
      return false;
    }
    settings.precision.loss_scale.initial = value.number;
    return true;
  };
  key.get = [](const Settings& settings) {
    return Value::of(settings.precision.loss_scale.initial);
  };
  return key;
}

Key hierarchical_collectives() {
  Key key;
  key.name = "hierarchical_collectives";
  static_assert(plan::Hierarchical::default_bytes == 4 << 20);
  key.meaning =
      "where a group of ranks spans nodes, whether it gathers and reduces in two levels, inside "
      "the nodes and across them: a node then sends as much as one rank would. auto: where nodes "
      "have equally many ranks, a power of two in each group, and the largest unit's parameters "
      "have 4 MiB or more; or name these bytes. Changes no bit of the result";
  key.expected = expected_hierarchical();
  key.limits = "auto | never | always | BYTES such as 4 MiB";
  key.set = [](Settings& settings, const Value& value) {
    const auto read = read_hierarchical(value);
    if (read) settings.parallel.hierarchical = *read;
    return read.has_value();
  };
  key.get = [](const Settings& settings) {
    return write_hierarchical(settings.parallel.hierarchical);
  };
  return key;
}

Key activation_checkpointing() {
  Key key;
  key.name = "activation_checkpointing";
  key.meaning =
      "what is not kept from forward to backward but computed again. full: all of each block; "
      "every N: of each Nth unit of blocks; selective, followed by parts such as attention mlp: "
      "these, in all blocks. Changes no bit of the result";
  key.expected = expected_checkpointing();
  key.limits = "none | full | every N | selective attention norms mlp";
  key.set = [](Settings& settings, const Value& value) {
    const auto read = read_checkpointing(value);
    if (!read) return false;
    settings.parallel.activation_checkpointing = read->units;
    settings.recompute = read->within_blocks;
    return true;
  };
  key.get = [](const Settings& settings) {
    return write_checkpointing({settings.parallel.activation_checkpointing, settings.recompute});
  };
  return key;
}

Section parallel_section() {
  return {
      "parallel",
      "how ranks share the work: the same result where ranks and leaves are powers of two. What "
      "to choose is in docs/strategies.md; keys marked `full only` change nothing with another "
      "sharding, unless memory.offload has parameters copied up for each use",
      {choice("sharding", FIELD(parallel.sharding), plan::sharding_names,
              "what is divided over a shard group: as DDP, ZeRO-1, -2, -3"),
       named_integer("shard_group", FIELD(shard_group),
                     {{"world", mesh::world_group}, {"node", mesh::node_group}}, 1, most_ranks,
                     "ranks that share one copy; other groups hold replicas"),
       choice(
           "shard_optimizer_over", FIELD(parallel.shard_optimizer_over),
           plan::optimizer_group_names,
           "ranks over which optimizer state is divided: a shard group, or all, which divides it "
           "over replicas too"),
       choice("accumulation", FIELD(parallel.accumulation), plan::accumulation_names,
              "when micro-batches' gradients are summed over ranks. reduce_each: each over all "
              "ranks; shard_each: each over the shard group, their sum over replicas; reduce_last: "
              "only their sum; auto: shard_each where gradients are sharded (or on the host, and "
              "optimizer state is), else reduce_last; with training.sum_grain what has the bits of "
              "one rank, if one of them has"),
       choice("leaf_order", FIELD(parallel.leaf_order), plan::leaf_order_names,
              "in which micro-batches are computed; shuffled takes more memory"),
       reshard(),
       integer("forward_prefetch", FIELD(parallel.forward_prefetch.depth), 0, most_units_ahead,
               "units gathered ahead while one computes: parameters (full only), and what updates "
               "take that must be gathered or copied"),
       integer("backward_prefetch", FIELD(parallel.backward_prefetch.depth), 0, most_units_ahead,
               "full only: the same in backward"),
       gather_limit(),
       integer("in_flight_reductions", FIELD(parallel.in_flight_reductions), 0, most_units_ahead,
               "units whose gradients are reduced while others compute; 0: compute waits"),
       rules("units", FIELD(parallel.units), read_unit_rules, write_unit_rules,
             "full only: rules for units by name, in which * stands for any text; the last that "
             "matches holds. Each sets one or more of reshard_after_forward, forward_prefetch and "
             "backward_prefetch; a prefetch is a number or names of units. Such as \"block.*: "
             "reshard_after_forward never, backward_prefetch 2; block.0: forward_prefetch block.1 "
             "block.2\""),
       only("reduction", "ordered", "how gradients are summed"), hierarchical_collectives(),
       integer("ranks_per_node", FIELD(ranks_per_node), 0, most_ranks,
               "0: as found; ranks of one host")}};
}

Section precision_section() {
  std::vector<Named<std::optional<Number>>> automatic_or_numbers = {{std::nullopt, "auto"}};
  for (const Named<Number>& number : number_names)
    automatic_or_numbers.push_back({number.value, number.name});
  return {"precision",
          "number formats",
          {only("parameters", "fp32", "of stored parameters, which are updated"),
           choice("gather", FIELD(precision.gather), number_names,
                  "in which parameters travel and are computed with"),
           choice("activations", FIELD(precision.activations), automatic_or_numbers,
                  "auto: as gather, and nothing else, as units compute in the numbers in which "
                  "parameters are gathered"),
           choice("reduce", FIELD(parallel.reduce), number_names,
                  "in which gradients travel within a shard group; all sums are of fp32"),
           loss_scale()}};
}

Section memory_section() {
  return {
      "memory",
      "what is traded for memory: see docs/memory.md",
      {activation_checkpointing(),
       choice("offload", FIELD(parallel.offload), plan::offload_names,
              "what lives in host memory instead of the device's. optimizer: masters, moments and "
              "summed gradients, which the host updates; parameters: masters and copies to compute "
              "with, copied up for each use; all: both"),
       boolean("pinned", FIELD(pinned_host_memory),
               "host memory that a device copies from and to directly"),
       boolean(
           "early_updates", FIELD(early_updates),
           "with updates on the host and clip_norm 0, fp16 nowhere, and no step left out: begin "
           "a unit's beside the backward of those before it"),
       choice("activations", FIELD(parallel.offload_activations),
              std::vector<Named<bool>>{{false, "device"}, {true, "host"}},
              "where what forward leaves for backward waits, but for the last units, whose "
              "backward follows at once")}};
}

Section optimizer_section() {
  return {
      "optimizer",
      "how parameters follow gradients",
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
              "adamw (in muon too): keeps from dividing by zero"),
       number("momentum", FIELD(optimizer.momentum), below_one,
              "sgd and muon: decay of the sum of gradients; 0: none, for sgd without state"),
       boolean("nesterov", FIELD(optimizer.nesterov),
               "sgd and muon: look ahead along the momentum"),
       integer("muon_iterations", FIELD(optimizer.muon_iterations), 1, most_muon_iterations,
               "muon only: of Newton and Schulz, that make a matrix orthogonal"),
       number("muon_rate_factor", FIELD(optimizer.muon_rate_factor), positive,
              "muon only: the learning rate of its matrices over that of others"),
       choice("moments", FIELD(parallel.moments.number),
              std::vector<Named<Number>>{{Number::fp32, name(Number::fp32)},
                                         {Number::bf16, name(Number::bf16)}},
              "in which optimizer state is kept; bf16 is rounded at random"),
       number("clip_norm", FIELD(optimizer.clip_norm), up_to_1e30,
              "largest norm of the whole gradient; 0: any"),
       rules("parameters", FIELD(optimizer.parameters), read_parameter_rules, write_parameter_rules,
             "rules for parameters by full name, in which * stands for any text; of those that "
             "match and set the same, the last holds. Each sets one or more of frozen (never "
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
                  "inverse_square_root: as 1 / sqrt(step), to no end"),
           number("final_fraction", FIELD(schedule.final_fraction), share,
                  "of the peak, at the last step; of cosine, linear and warmup_stable_decay"),
           integer("decay_steps", FIELD(schedule.decay_steps), 0,
                   "last steps, in which warmup_stable_decay falls")}};
}

Section checkpoint_section() {
  return {"checkpoint",
          "where training begins, and when it saves its state, from which it can go on",
          {integer("every", FIELD(checkpoint.every), 0,
                   "steps between checkpoints; 0: only when a signal or runtime.wall_time asks"),
           integer("keep", FIELD(checkpoint.keep), 1, "checkpoints to keep, of those saved last"),
           integer("keep_every", FIELD(checkpoint.keep_every), 0,
                   "keep for good those of steps that this divides; 0: none"),
           choice("files", FIELD(checkpoint.files), checkpoint::files_names, "one for each"),
           boolean("async", FIELD(checkpoint.asynchronous),
                   "go on while a copy of the state, in host memory, is written; without `every` "
                   "there is no room for one"),
           boolean("verify", FIELD(checkpoint.verify), "read back what was written"),
           number("bandwidth", FIELD(checkpoint.bandwidth), not_negative,
                  "MB/s that a rank writes at most; 0: no limit"),
           path("initial_weights", FIELD(checkpoint.initial_weights), true,
                "weights.h5 or a checkpoint of a run, or safetensors (a file, an index or a folder "
                "with them) in Hugging Face's naming; empty: random")}};
}

Section output_section() {
  return {"output",
          "what is written where",
          {path("directory", FIELD(output.directory), false, "made if it is not there"),
           integer("every", FIELD(output.every), 1, "steps between progress lines"),
           integer("digest_every", FIELD(output.digest_every), 0,
                   "steps between state digests; 0: never"),
           integer("trace", FIELD(output.trace_steps), 0, "steps in trace.json, from the second")}};
}

/// As batch systems write it.
Key wall_time() {
  Key key;
  key.name = "wall_time";
  key.meaning =
      "time after its start at which the job ends: a checkpoint is saved just before, and the exit "
      "status is 75. As sbatch --time takes it, in quotes where it has a colon; 0: no limit";
  key.expected =
      "a time as minutes, minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes "
      "or days-hours:minutes:seconds";
  key.limits = "minutes | [days-]hours:minutes:seconds";
  key.set = [](Settings& settings, const Value& value) {
    const auto minutes = value.integer(0, largest_integer);
    if (!minutes && value.kind != Value::Kind::text) return false;
    const auto seconds = parse_wall_time(minutes ? std::to_string(*minutes) : value.text);
    if (seconds) settings.runtime.wall_time = *seconds;
    return seconds.has_value();
  };
  key.get = [](const Settings& settings) {
    const double seconds = settings.runtime.wall_time;
    return seconds == 0.0 ? Value::of(0.0) : Value::of(format_wall_time(seconds));
  };
  key.is_text = true;
  return key;
}

Key paths_from() {
  return choice(
      "paths_from", FIELD(runtime.paths_from), paths_from_names,
      "which folder relative paths in the deck begin at: the deck's own, or the one in which the "
      "program is started");
}

Section runtime_section() {
  return {"runtime",
          "this machine",
          {named_integer("threads", FIELD(runtime.threads), {{"auto", automatic_threads}}, 1, 4096,
                         "of a rank, in the matrix library; auto: as many as Kokkos runs kernels "
                         "on, the least over ranks"),
           number("peak_gflops", FIELD(runtime.peak_gflops), not_negative,
                  "peak rate of a rank, which MFU is a share of; 0: measured"),
           wall_time(),
           choice("streams", FIELD(runtime.streams), streams_choice_names,
                  "communication beside compute"),
           paths_from()}};
}

#undef FIELD

std::vector<std::string> section_names() {
  std::vector<std::string> names;
  for (const Section& section : sections()) names.push_back(section.name);
  return names;
}

std::vector<std::string> key_names(const Section& section) {
  std::vector<std::string> names;
  for (const Key& key : section.keys) names.push_back(key.name);
  return names;
}

/// "section.key" of the key with this name, in whatever section; empty if there is none.
std::string find_anywhere(const std::string& name) {
  for (const Section& section : sections()) {
    if (find_key(section, name) != nullptr) return section.name + "." + name;
  }
  return "";
}

/// The same for the key nearest to `name`.
std::string find_near(const std::string& name) {
  std::vector<std::string> names;
  for (const Section& section : sections()) {
    for (const Key& key : section.keys) names.push_back(key.name);
  }
  return find_anywhere(nearest(name, names));
}

std::string did_you_mean(const std::string& what) { return "; did you mean " + what + "?"; }

}  // namespace

const std::vector<Section>& sections() {
  static const std::vector<Section> table = {
      model_section(),      data_section(),   training_section(),  parallel_section(),
      precision_section(),  memory_section(), optimizer_section(), schedule_section(),
      checkpoint_section(), output_section(), runtime_section()};
  return table;
}

const Section* find_section(const std::string& name) {
  for (const Section& section : sections()) {
    if (section.name == name) return &section;
  }
  return nullptr;
}

const Key* find_key(const Section& section, const std::string& name) {
  for (const Key& key : section.keys) {
    if (key.name == name) return &key;
  }
  return nullptr;
}

std::string suggest_key(const std::string& section_name, const std::string& name) {
  const Section* section = find_section(section_name);
  if (section == nullptr) section = find_section(nearest(section_name, section_names()));
  if (section != nullptr) {
    const std::string near = nearest(name, key_names(*section));
    if (near == name) return did_you_mean(section->name + "." + name);
    const std::string elsewhere = find_anywhere(name);
    if (!elsewhere.empty()) return did_you_mean(elsewhere);
    if (!near.empty()) return did_you_mean(section->name + "." + near);
    std::vector<std::string> alike = with_parts_of(name, key_names(*section));
    for (std::string& key : alike) key = section->name + "." + key;
    if (!alike.empty()) return did_you_mean(join(alike, ", ", " or "));
  }
  const std::string anywhere = find_near(name);
  if (!anywhere.empty()) return did_you_mean(anywhere);
  if (section == nullptr) return "; the sections are " + join(section_names(), ", ", " and ");
  return "; the keys of " + section->name + " are " + join(key_names(*section), ", ", " and ");
}

std::string suggest_section(const std::string& name) {
  const std::string near = nearest(name, section_names());
  const std::string key = find_anywhere(name);
  if (!key.empty()) return did_you_mean(key);
  if (!near.empty()) return did_you_mean(near);
  const std::string near_key = find_near(name);
  if (!near_key.empty()) return did_you_mean(near_key);
  return "; the sections are " + join(section_names(), ", ", " and ");
}

}  // namespace ostrakon::config
