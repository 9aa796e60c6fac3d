// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/trainer/trainer_settings.hpp>

#include <array>
#include <cstdint>
#include <ostrakon/base/error.hpp>
#include <ostrakon/comm/communicator.hpp>
#include <ostrakon/config/keys.hpp>
#include <ostrakon/config/value.hpp>
#include <ostrakon/math/portability.hpp>
#include <ostrakon/trainer/threads.hpp>
#include <stdexcept>
#include <string>
#include <utility>

namespace ostrakon::train {
namespace {

/// A field and the key of decks that has the same range.
struct Field {
  const char* name;
  const char* section;
  const char* key;
};
constexpr Field fields[] = {
    {"steps", "training", "steps"},
    {"global_batch_size", "training", "global_batch_size"},
    {"micro_batch_size", "training", "micro_batch_size"},
    {"optimizer.kind", "optimizer", "name"},
    {"optimizer.learning_rate", "optimizer", "learning_rate"},
    {"optimizer.weight_decay", "optimizer", "weight_decay"},
    {"optimizer.beta1", "optimizer", "beta1"},
    {"optimizer.beta2", "optimizer", "beta2"},
    {"optimizer.epsilon", "optimizer", "epsilon"},
    {"optimizer.momentum", "optimizer", "momentum"},
    {"optimizer.nesterov", "optimizer", "nesterov"},
    {"optimizer.clip_norm", "optimizer", "clip_norm"},
    {"optimizer.muon_iterations", "optimizer", "muon_iterations"},
    {"optimizer.muon_rate_factor", "optimizer", "muon_rate_factor"},
    {"optimizer.parameters", "optimizer", "parameters"},
    {"schedule.warmup_steps", "schedule", "warmup_steps"},
    {"schedule.tail", "schedule", "tail"},
    {"schedule.final_fraction", "schedule", "final_fraction"},
    {"schedule.decay_steps", "schedule", "decay_steps"},
    {"stability.skip_non_finite", "training", "on_non_finite"},
    {"stability.outlier_threshold", "training", "skip_outliers"},
    {"stability.outlier_window", "training", "outlier_window"},
    {"ema", "training", "ema"},
    {"audit_every", "runtime", "audit"},
    {"policy.sharding", "parallel", "sharding"},
    {"policy.rank_order", "parallel", "rank_order"},
    {"policy.schedule", "parallel", "schedule"},
    {"policy.zero_bubble_memory", "parallel", "zero_bubble_memory"},
    {"policy.chunks", "parallel", "pipeline_chunks"},
    {"policy.shard_optimizer_over", "parallel", "shard_optimizer_over"},
    {"policy.accumulation", "parallel", "accumulation"},
    {"policy.summation", "parallel", "reduction"},
    {"policy.node_windows", "parallel", "node_windows"},
    {"policy.leaf_order", "parallel", "leaf_order"},
    {"policy.reshard_after_forward", "parallel", "reshard_after_forward"},
    {"policy.forward_prefetch.depth", "parallel", "forward_prefetch"},
    {"policy.backward_prefetch.depth", "parallel", "backward_prefetch"},
    {"policy.in_flight_reductions", "parallel", "in_flight_reductions"},
    {"policy.units", "parallel", "units"},
    {"policy.updates", "parallel", "updates"},
    {"policy.hierarchical", "parallel", "hierarchical_collectives"},
    {"sum_grain", "training", "sum_grain"},
    {"policy.reduce", "precision", "reduce"},
    {"policy.moments.dtype", "optimizer", "moments"},
    {"policy.offload", "memory", "offload"},
    {"policy.frozen_without_masters", "precision", "frozen"},
    {"policy.offload_activations", "memory", "activations"},
    {"early_updates", "memory", "early_updates"},
    {"pinned_host_memory", "memory", "pinned"},
    {"subnormals", "runtime", "subnormals"},
};

struct Integer {
  const char* name;
  std::int64_t value;
};

/// Returns nonnegative fields that decks set by other values than a number.
std::array<Integer, 3> integers_of(const TrainerSettings& settings) {
  const plan::PolicyChoices& policy = settings.policy;
  return {{{"policy.activation_checkpointing.every", policy.activation_checkpointing.every},
           {"policy.in_flight_gathers.units", policy.in_flight_gathers.units},
           {"policy.in_flight_gathers.bytes", policy.in_flight_gathers.bytes}}};
}

const config::Key& key_of(const Field& field) {
  const config::Section* const section = config::find_section(field.section);
  const config::Key* const key = section ? config::find_key(*section, field.key) : nullptr;
  if (key == nullptr) throw std::logic_error(text("no key ", field.section, ".", field.key));
  return *key;
}

/// Returns the value of a key; for an enumerator that decks have no name for, a text that no key
/// takes.
config::Value value_of(const config::Settings& deck, const config::Key& key) {
  try {
    return key.get(deck);
  } catch (const config::UnnamedValue& unnamed) {
    return config::Value::of(unnamed.value());
  }
}

std::string shown(const config::Value& value) {
  return value.kind == config::Value::Kind::text ? value.text : value.shown();
}

void check(const Field& field, config::Settings& deck) {
  const config::Key& key = key_of(field);
  const config::Value value = value_of(deck, key);
  bool is_taken = false;
  try {
    is_taken = key.set(deck, value);
  } catch (const Error& error) {
    throw Error(text(field.name, ": ", error.what()));
  }
  require(is_taken, field.name, " is ", shown(value), "; expected ", key.expected);
}

/// Returns a deck in which the keys of `fields` have the values of these.
config::Settings as_deck(const TrainerSettings& settings) {
  config::Settings deck;
  deck.parallel = settings.policy;
  static_cast<config::UpdateChoices&>(deck) = settings;
  static_cast<config::StepChoices&>(deck.training) = settings;
  deck.training.sum_grain = settings.sum_grain;
  deck.runtime.subnormals = settings.subnormals;
  deck.runtime.audit = settings.audit_every;
  return deck;
}

}  // namespace

void check(const TrainerSettings& settings) {
  config::Settings deck = as_deck(settings);
  for (const Field& field : fields) check(field, deck);
  for (const Integer& one : integers_of(settings))
    require(one.value >= 0, one.name, " is ", one.value, "; expected at least 0");
  require(settings.global_batch_size % settings.micro_batch_size == 0, "global_batch_size is ",
          settings.global_batch_size, "; expected a multiple of micro_batch_size, which is ",
          settings.micro_batch_size);
  require(settings.global_batch_size <= config::largest_integer / settings.steps, "steps is ",
          settings.steps, " and global_batch_size ", settings.global_batch_size,
          "; expected at most ", config::largest_integer, " samples in all steps");
  optim::LossScale{settings.loss_scale};  // the constructor checks them
  require_subnormals(settings.subnormals, "subnormals = Subnormals::flush", "Subnormals::keep");
  if (settings.streams == runtime::Streams::threads)
    require_stream_threads({has_device, comm::Communicator::threads_may_call()},
                           "streams = Streams::threads", "Streams::in_plan_order");
}

void require_own_losses(const model::LossTerms& loss, std::int64_t samples) {
  if (samples % loss.samples == 0 || loss.terms % loss.samples == 0) return;
  throw CollectiveError(
      text("the mean loss of ", samples, " samples, fewer than a global batch: the model has ",
           loss.terms, " ", loss.name, " for the ", loss.samples,
           " samples of a leaf, not equally many for each; expected a multiple of ", loss.samples,
           " samples, which is micro_batch_size"));
}

Facts facts_of(const TrainerSettings& settings) {
  const config::Settings deck = as_deck(settings);
  Facts facts;
  for (const Field& field : fields) {
    facts.push_back({field.name, shown(value_of(deck, key_of(field)))});
  }
  for (const Integer& one : integers_of(settings))
    facts.push_back({one.name, std::to_string(one.value)});
  const optim::LossScaleSettings& scale = settings.loss_scale;
  for (const auto& [name, value] : {std::pair{"loss_scale.initial", scale.initial},
                                    std::pair{"loss_scale.smallest", scale.smallest},
                                    std::pair{"loss_scale.largest", scale.largest}})
    facts.push_back({name, config::format_number(value)});
  facts.push_back({"loss_scale.growth_interval", std::to_string(scale.growth_interval)});
  facts.push_back({"seed", std::to_string(settings.seed)});
  facts.push_back({"checkpoint_staging", settings.checkpoint_staging ? "on" : "off"});
  facts.push_back({"streams", name_in(runtime::streams_names, settings.streams)});
  facts.push_back({"transport", name_in(comm::transport_names, settings.transport)});
  facts.push_back({"graphs", settings.graphs ? "on" : "off"});
  facts.push_back({"single_communicators", settings.single_communicators ? "on" : "off"});
  facts.push_back({"products_file", settings.products_file});
  facts.push_back({"collective_timeout", config::format_number(settings.collective_timeout)});
  return facts;
}

}  // namespace ostrakon::train
