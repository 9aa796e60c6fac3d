// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/config/deck.hpp>

#include <algorithm>
#include <limits>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/numbers.hpp>
#include <ostrakon/config/factors.hpp>
#include <ostrakon/config/keys.hpp>
#include <ostrakon/config/model_checks.hpp>
#include <ostrakon/config/nearest.hpp>
#include <ostrakon/config/policy_text.hpp>
#include <vector>

namespace ostrakon::config {
namespace {

std::string ranks_text(int ranks) { return text(ranks, ranks == 1 ? " rank" : " ranks"); }

/// Checks batches, and leaves that are parts of sequences or of micro-batches.
void check_parts(const Settings& settings, const std::string& name) {
  const TrainingSettings& training = settings.training;
  require_divides(name, {"training.micro_batch_size", training.micro_batch_size},
                  {"training.global_batch_size", training.global_batch_size});
  const std::int64_t context = settings.context, grain = training.context_grain;
  const std::int64_t length = training.sequence_length, batch = training.micro_batch_size;
  const std::int64_t cuts = 2 * std::max(context, grain);
  require(grain == 1 || grain % context == 0, name, ": parallel.context = ", context,
          " does not divide training.context_grain = ", grain, " (", division(grain, context),
          "); expected a divisor, or a grain of 1");
  require(cuts == 2 || length % cuts == 0, name, ": ",
          grain > context ? "training.context_grain = " : "parallel.context = ", cuts / 2,
          " cuts a sequence into ", cuts, " pieces, which training.sequence_length = ", length,
          " is no multiple of (", division(length, cuts), "); use ", length / cuts * cuts, " or ",
          (length / cuts + 1) * cuts);
  require(cuts == 2 || !settings.model.has_delta_nets(), name, ": ",
          grain > context ? "training.context_grain = " : "parallel.context = ", cuts / 2,
          " with model.delta_key_heads = ", settings.model.delta_net.key_heads,
          ": a gated delta net has a state that passes all tokens of a sequence; expected 1");
  require(batch == 1 || grain == 1 || training.leaf == Leaf::sequence, name,
          ": training.context_grain = ", grain,
          " makes leaves of the pieces of each sequence, but training.micro_batch_size = ", batch,
          " with training.leaf = micro_batch sums sequences before; expected training.leaf = "
          "sequence or training.micro_batch_size = 1");
  require(batch == 1 || context == 1 || training.leaf == Leaf::micro_batch, name,
          ": training.leaf = sequence with parallel.context = ", context,
          ": a sequence's gradients are summed over its ranks before those of other sequences are "
          "added; expected training.micro_batch_size = 1 instead of ",
          batch);
  require(training.leaf == Leaf::micro_batch || training.sum_grain == 0 ||
              training.sum_grain % batch == 0,
          name, ": training.sum_grain = ", training.sum_grain,
          " is a number of sequences (training.leaf), of which training.micro_batch_size = ", batch,
          " are summed at once; expected a multiple of it");
}

/// Checks the sizes that tensor ranks divide.
void check_pieces(const Settings& settings, const std::string& name) {
  const std::int64_t tensor = settings.tensor, grain = settings.tensor_grain;
  require(grain == 1 || grain % tensor == 0, name, ": parallel.tensor = ", tensor,
          " does not divide model.tensor_grain = ", grain, " (", division(grain, tensor),
          "); expected a divisor, or a grain of 1");
  const std::int64_t pieces = std::max(tensor, grain), chunks = settings.tensor_chunks;
  require(chunks == 1 || tensor > 1, name, ": parallel.tensor_chunks = ", chunks,
          " with parallel.tensor = 1, where no rows are exchanged; expected parallel.tensor_chunks "
          "= 1, or parallel.tensor > 1");
  if (pieces == 1) return;
  const Factor by = {grain > 1 ? "model.tensor_grain" : "parallel.tensor", pieces};
  const model::DecoderSettings& model = settings.model;
  const TrainingSettings& training = settings.training;
  require_divides(name, by, {"model.heads", model.heads});
  require_divides(name, by, {"model.kv_heads", model.kv_heads});
  require_divides(name, by, {"model.width", model.width});
  const bool is_rotated = model.query_key_norm == model::QueryKeyNorm::rotated;
  const bool has_head_weights = (is_rotated || model.query_key_norm == model::QueryKeyNorm::head) &&
                                model.norm_weight != math::NormWeight::none;
  if (has_head_weights)
    require_divides(
        name, by,
        {model.head_dim > 0 ? "model.head_width" : "model.width / model.heads", model.head_width()},
        is_rotated ? ", the elements of the weights of model.query_key_norm = rotated"
                   : ", the elements of the weights of model.query_key_norm = true");
  if (model.latent.exist()) {
    require_divides(name, by, {"model.query_rank", model.latent.q_rank});
    require_divides(name, by, {"model.kv_rank", model.latent.kv_rank});
    require_divides(name, by, {"model.rotary_width", model.latent.rotary_width});
  }
  if (model.has_delta_nets()) {
    require_divides(name, by, {"model.delta_key_heads", model.delta_net.key_heads});
    require_divides(name, by, {"model.delta_value_width", model.delta_net.value_width},
                    ", the elements of the weights of norms in model.delta_layers");
  }
  if (model.has_dense_layers()) require_divides(name, by, {"model.ffn_width", model.ffn_width});
  if (model.experts.exist()) {
    require_divides(name, by, {"model.experts", model.experts.count});
    require_divides(
        name, by,
        {model.experts.own_shared_width > 0 ? "model.shared_expert_width"
                                            : "model.shared_experts x model.expert_width",
         model.experts.shared_width()});
  }
  const std::int64_t words = (model.vocabulary + pieces - 1) / pieces;
  require((pieces - 1) * words < model.vocabulary, name, ": ", by.name, " = ", pieces, " cuts ",
          "model.vocabulary = ", model.vocabulary, " into pieces of ", words,
          " words, of which the last would have none");
  const std::int64_t cuts = std::max(settings.context, training.context_grain);
  const std::int64_t sequences = training.leaf == Leaf::sequence ? 1 : training.micro_batch_size;
  const std::int64_t rows = training.sequence_length / cuts * sequences;
  require(rows % pieces == 0, name, ": ", by.name, " = ", pieces, " does not divide the ", rows,
          " tokens of a leaf (", division(rows, pieces), ")");
  const std::int64_t own =
      training.sequence_length / settings.context * training.micro_batch_size / tensor;
  require(own % chunks == 0, name, ": parallel.tensor_chunks = ", chunks, " does not divide the ",
          own,
          " tokens of a micro-batch that a tensor rank has (micro_batch_size x "
          "sequence_length / context / tensor); expected a divisor of ",
          own);
}

/// Checks the chunks of pipeline stages. Units are only counted if their number is known.
void check_pipeline(const Settings& settings, const std::string& name) {
  const plan::PolicyChoices& policy = settings.parallel;
  const bool interleaves = policy.schedule == plan::ScheduleKind::interleaved;
  const std::string key = text(name, ": parallel.pipeline_chunks = ", policy.chunks);
  require(interleaves || policy.chunks == 1, key,
          " with parallel.schedule = ", plan::name(policy.schedule),
          ", in which stages have one; expected 1, or interleaved");
  require(!interleaves || policy.chunks > 1, key,
          " with parallel.schedule = interleaved; expected 2 or more, or 1f1b");
  require(policy.schedule == plan::ScheduleKind::one_forward_one_backward || settings.pipeline > 1,
          name, ": parallel.schedule = ", plan::name(policy.schedule),
          " with parallel.pipeline = 1, where there are no stages; "
          "expected 1f1b, or parallel.pipeline > 1");
  require(settings.pipeline > 1 || policy.chunk_units.empty(), name,
          ": parallel.pipeline_units with parallel.pipeline = 1, where one stage has all units; "
          "expected auto, or parallel.pipeline > 1");
}

/// Checks that weights which are to be gathered in 8 bits multiply so, and that owners of masters
/// send them: copies of parameters, kept or updated in 16 bits, would not be rounded.
void check_fp8_gather(const Settings& settings, const std::string& name) {
  const model::ProductSettings& products = settings.precision.products;
  if (!products.fp8_gather) return;
  const std::string key = text(name, ": precision.gather = fp8");
  require(math::is_8bit(products.dtype), key,
          " with precision.products = ", math::name(products.dtype),
          ", which has no products in 8 bits; expected fp8 or mxfp8, or precision.gather: bf16");
  require(settings.parallel.sharding == plan::Sharding::full, key,
          " with parallel.sharding = ", plan::name(settings.parallel.sharding),
          ", which gathers no weights; expected full, or precision.gather: bf16");
  require(!settings.parallel.frozen_without_masters, key,
          " with precision.frozen = gather, where no masters are rounded; expected fp32, or "
          "precision.gather: bf16");
  require(settings.parallel.offload == plan::Offload::none, key,
          " with memory.offload = ", plan::name(settings.parallel.offload),
          ", whose copies of parameters have 16 bits; expected none, or precision.gather: bf16");
}

void check_precision(const PrecisionSettings& precision, const std::string& name) {
  const DType activations = precision.activations.value_or(precision.gather);
  require(activations == precision.gather, name,
          ": precision.activations = ", ostrakon::name(activations),
          " is not precision.gather = ", ostrakon::name(precision.gather),
          ": units compute in the gather dtype; expected auto or ",
          ostrakon::name(precision.gather));
}

/// Checks products in 8 bits: which layers have them, and that these are linear layers that every
/// rank takes for all rows.
void check_products(const Settings& settings, const std::string& name) {
  const model::ProductSettings& products = settings.precision.products;
  if (!math::is_8bit(products.dtype)) return;
  const model::DecoderSettings& model = settings.model;
  const std::string key = text(name, ": precision.products = ", math::name(products.dtype));
  require(settings.precision.gather != DType::fp16, key,
          " with precision.gather = fp16, which has no room for what the largest numbers are "
          "rounded to; expected bf16 or fp32");
  const std::string pattern = products.fp8_layers ? products.fp8_layers->text() : "auto";
  require(!products.fp8_layers || products.fp8_layers->least_layers() <= model.layers, name,
          ": precision.fp8_layers = ", pattern, " names layers that model.layers = ", model.layers,
          " has not; expected layers up to ", model.layers - 1);
  std::int64_t count = 0;
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    if (!products.are_8bit(layer, model.layers)) continue;
    ++count;
    require(!model.block_kind(layer).has_experts, key, " in layer ", layer,
            " with model.experts = ", model.experts.count,
            ": experts' products have no 8 bits yet; expected precision.fp8_layers without it");
  }
  require(count > 0, key, " with precision.fp8_layers = ", pattern, ", which is none of the ",
          model.layers, model.layers == 1 ? " layer" : " layers",
          "; expected some layers, or products: auto");
  require(!model.latent.exist(), key,
          " with latent attention (model.kv_rank = ", model.latent.kv_rank,
          "), some of whose products have no 8 bits yet; expected auto");
}

/// Shows names with the blocks' numbers folded: "embedding.token.weight, block.N.mlp.up.weight and
/// head.norm.weight, with N from 0 to 3".
std::string show_names(const std::vector<std::string>& names, std::int64_t layers) {
  const std::string any_block = "block.", first_block = "block.0.";
  std::vector<std::string> shown;
  for (const std::string& name : names) {
    const bool of_first = name.compare(0, first_block.size(), first_block) == 0;
    const bool of_block = name.compare(0, any_block.size(), any_block) == 0;
    if (of_first) shown.push_back("block.N." + name.substr(first_block.size()));
    if (!of_block) shown.push_back(name);
  }
  return text(join(shown, ", ", " and "), ", with N from 0 to ", layers - 1);
}

void check_parameter_rules(const Settings& settings, const std::string& name) {
  const std::vector<optim::ParameterRule>& rules = settings.optimizer.parameters;
  if (rules.empty()) return;
  const std::vector<model::Parameter> parameters = parameters_of(settings);
  std::vector<std::string> names;
  for (const model::Parameter& parameter : parameters) names.push_back(parameter.full_name());
  for (const optim::ParameterRule& rule : rules) {
    for (const model::Parameter& parameter : parameters)
      require(rule.frozen.value_or(true) || !parameter.frozen ||
                  !plan::matches(rule.pattern, parameter.full_name()),
              name, ": optimizer.parameters trains ", parameter.full_name(),
              " with lora.rank = ", settings.model.lora.rank,
              ", which trains adapters alone; expected rules for *.lora_* alone");
    if (std::any_of(names.begin(), names.end(),
                    [&](const std::string& one) { return plan::matches(rule.pattern, one); }))
      continue;
    throw Error(text(name, ": optimizer.parameters: rule ",
                     Value::of(write_parameter_rules({rule})).shown(),
                     ": no parameter of the model has such a name; they are ",
                     show_names(names, settings.model.layers)));
  }
  require(!std::all_of(parameters.begin(), parameters.end(),
                       [&](const model::Parameter& one) {
                         return one.frozen || optim::is_frozen(rules, one.full_name());
                       }),
          name, ": optimizer.parameters = ", Value::of(write_parameter_rules(rules)).shown(),
          ": all parameters are frozen, nothing is left to train; expected rules that leave some "
          "trained");
}

void check_sizes(const Settings& settings, const std::string& name) {
  const model::DecoderSettings& model = settings.model;
  const TrainingSettings& training = settings.training;
  const bool has_table = model.positions == model::Positions::learned && model.max_positions > 0;
  require(!has_table || model.max_positions >= training.sequence_length, name,
          ": model.max_positions = ", model.max_positions,
          " is less than training.sequence_length = ", training.sequence_length,
          ": sequences can't be longer than the table of learned positions; expected a "
          "sequence_length of ",
          model.max_positions, " or less or, without weights that have the table, max_positions = ",
          training.sequence_length, " or more");
  const Factor layers = {"model.layers", model.layers};
  const Factor width = {"model.width", model.width};
  const Factor ffn_width = {"model.ffn_width", model.ffn_width};
  const Factor batch = {"training.micro_batch_size", training.micro_batch_size};
  const Factor length = {"training.sequence_length", training.sequence_length};
  // A limit in elements, far above any machine's memory and far enough below 2^63 for bytes.
  constexpr std::int64_t most = std::int64_t{1} << 50;
  require_product(name, most, "parameters", {{"model.vocabulary", model.vocabulary}, width});
  const Factor heads = {"model.heads", model.heads};
  const Factor head_width = {"model.head_width", model.head_width()};
  require_product(name, most, "parameters",
                  {{"model.max_positions", std::max<std::int64_t>(model.max_positions, 1)}, width});
  require_product(name, most, "parameters", {layers, width, width});
  require_product(name, most, "parameters", {layers, width, heads, head_width});
  require_product(name, most, "parameters", {layers, width, ffn_width});
  if (const model::LatentSettings& latent = model.latent; latent.exist()) {
    const Factor value_width = {"model.value_width", model.value_width()};
    for (const Factor& rank :
         {Factor{"model.query_rank", latent.q_rank}, Factor{"model.kv_rank", latent.kv_rank}}) {
      require_product(name, most, "parameters", {layers, width, rank});
      require_product(name, most, "parameters", {layers, heads, head_width, rank});
      require_product(name, most, "parameters", {layers, heads, value_width, rank});
      require_product(name, most, "activations", {layers, batch, length, rank});
    }
    require_product(name, most, "parameters", {layers, width, heads, value_width});
    require_product(name, most, "activations", {layers, batch, length, heads, value_width});
  }
  // BLAS libraries count rows in 32 bits.
  require_product(name, std::numeric_limits<std::int32_t>::max(), "tokens", {batch, length});
  require_product(name, most, "activations", {layers, batch, length, width});
  require_product(name, most, "activations", {layers, batch, length, heads, head_width});
  require_product(name, most, "activations", {layers, batch, length, ffn_width});
  if (const model::ExpertSettings& experts = model.experts; experts.exist()) {
    const Factor expert_width = {"model.expert_width", experts.width};
    const Factor per_token = {"model.experts_per_token", experts.per_token};
    require_product(name, most, "parameters",
                    {layers, {"model.experts", experts.count}, width, expert_width});
    require_product(name, most, "parameters",
                    {layers, {"model.shared_experts", experts.shared}, width, expert_width});
    require_product(name, most, "parameters",
                    {layers, width, {"model.shared_expert_width", experts.shared_width()}});
    // Dispatched tokens are counted in 32 bits.
    require_product(name, std::numeric_limits<std::int32_t>::max(), "copies of tokens",
                    {per_token, batch, length});
    require_product(name, most, "activations", {layers, per_token, batch, length, width});
    require_product(name, most, "activations", {layers, per_token, batch, length, expert_width});
  }
  require_product(name, largest_integer, "tokens",
                  {{"training.steps", training.steps},
                   {"training.global_batch_size", training.global_batch_size},
                   length});
}

/// Limits the number of actions of a step, as all of them are planned before it.
void check_plan_length(const Settings& settings, int ranks) {
  constexpr std::int64_t most = 1000000;
  // Units of one block are the most, so an automatic size has no more.
  const std::int64_t blocks = std::max<std::int64_t>(settings.model.blocks_per_unit, 1);
  const std::int64_t units = (settings.model.layers + blocks - 1) / blocks + 2;
  const std::int64_t micro_batches = settings.leaves() * settings.tensor / ranks;
  require(micro_batches <= most / units, "a step is too long to plan: (model.layers ",
          blocks == 1 ? "" : "/ model.blocks_per_unit ",
          "+ 2) x training.global_batch_size / training.micro_batch_size / ranks = ", units, " x ",
          settings.training.global_batch_size, " / ", settings.training.micro_batch_size, " / ",
          ranks, " = ", units, " x ", micro_batches, ", more than ", format_count(most),
          "; raise training.micro_batch_size or use more ranks");
}

/// Lists up to ten divisors of `number` from `least` on, those nearest to `near`: "1, 2, 4 or 8".
std::string list_divisors(std::int64_t number, std::int64_t near, std::int64_t least) {
  std::vector<std::int64_t> below, above;
  for (std::int64_t d = least; d <= std::min(number, most_ranks); ++d) {
    if (number % d == 0) (d <= near ? below : above).push_back(d);
  }
  constexpr std::ptrdiff_t most = 5;
  const auto size = static_cast<std::ptrdiff_t>(below.size());
  below.erase(below.begin(), below.begin() + std::max<std::ptrdiff_t>(0, size - most));
  above.resize(std::min<std::size_t>(above.size(), most));
  below.insert(below.end(), above.begin(), above.end());
  std::vector<std::string> divisors;
  for (const std::int64_t d : below) divisors.push_back(std::to_string(d));
  return join(divisors, ", ", " or ");
}

/// Checks that context and tensor ranks, which are neighbours, fit into a shard group.
void check_neighbours(const Settings& settings, int ranks) {
  const std::int64_t context = settings.context, tensor = settings.tensor;
  const std::int64_t together = context * tensor;
  const std::string names = tensor == 1    ? text("parallel.context = ", context)
                            : context == 1 ? text("parallel.tensor = ", tensor)
                                           : text("parallel.context x parallel.tensor = ", context,
                                                  " x ", tensor, " = ", together);
  require(ranks % together == 0, names, " does not divide the ", ranks_text(ranks),
          settings.pipeline > 1 ? " of a stage" : "", " (", division(ranks, together),
          "); expected a divisor");
  const int group = settings.shard_group;
  if (group > 0 && ranks % group == 0)
    require(group % together == 0, names, " does not divide the ", group,
            " ranks of a shard group (parallel.shard_group); expected a divisor");
}

/// Checks that expert parallel ranks, which are neighbours, fit into a shard group.
void check_experts_on_ranks(const Settings& settings, int ranks) {
  const std::int64_t sharing = settings.expert;
  const int group = settings.shard_group > 0 ? settings.shard_group : ranks;
  require(group % sharing == 0, "parallel.expert = ", sharing, " does not divide the ",
          ranks_text(group), " of a shard group (",
          settings.shard_group > 0 ? "parallel.shard_group"
          : settings.pipeline > 1  ? "the ranks of a stage"
                                   : "all ranks",
          "); expected a divisor");
}

void check_leaves(const Settings& settings, int all_ranks) {
  const TrainingSettings& training = settings.training;
  const std::int64_t leaves = training.micro_batches();
  const std::int64_t context = settings.context, tensor = settings.tensor;
  const int ranks = all_ranks / static_cast<int>(context * tensor);
  if (leaves % ranks == 0) return;
  const bool in_groups = context * tensor > 1;
  const char* const keys = tensor == 1    ? "parallel.context"
                           : context == 1 ? "parallel.tensor"
                                          : "parallel.context x parallel.tensor";
  const std::string sharing =
      in_groups ? text(" groups of ", context * tensor, " ranks (", keys, ")") : " ranks";
  const std::string problem =
      leaves < ranks
          ? text("fewer than ", ranks, sharing)
          : text("which ", ranks, sharing, " can't share evenly (", division(leaves, ranks), ")");
  throw Error(
      text("training.global_batch_size / training.micro_batch_size = ", training.global_batch_size,
           " / ", training.micro_batch_size, " = ", leaves, leaves == 1 ? " leaf, " : " leaves, ",
           problem, "; use ", list_divisors(leaves, ranks, 1),
           in_groups     ? " groups"
           : leaves == 1 ? " rank"
                         : " ranks",
           ", or make training.global_batch_size a multiple of ", ranks, " x ",
           training.micro_batch_size, " = ", ranks * training.micro_batch_size));
}

/// `name` is the key of the setting.
void check_kept_parts(const plan::Reshard& reshard, const std::string& name, int group) {
  if (reshard.kind != plan::Reshard::partly || group <= reshard.ranks) return;
  require(group % reshard.ranks == 0, name, " = ", reshard.ranks, " does not divide the ", group,
          " ranks of a shard group (", division(group, reshard.ranks), "); use ",
          list_divisors(group, reshard.ranks, 2));
}

/// The ranks of a node may be unknown here; the mesh checks them.
void check_reshard(const Settings& settings, int ranks, int ranks_per_node) {
  int group = settings.shard_group;
  if (group == mesh::world_group) group = ranks;
  if (group == mesh::node_group)
    group = ranks_per_node > 0 ? ranks_per_node : static_cast<int>(settings.ranks_per_node);
  if (group == 0 || ranks % group != 0) return;
  group /= static_cast<int>(settings.tensor);
  check_kept_parts(settings.parallel.reshard_after_forward, "parallel.reshard_after_forward",
                   group);
  for (const plan::UnitRule& rule : settings.parallel.units) {
    if (!rule.reshard_after_forward) continue;
    check_kept_parts(*rule.reshard_after_forward,
                     text("parallel.units: rule ", Value::of(write_unit_rules({rule})).shown(),
                          ": reshard_after_forward"),
                     group);
  }
}

}  // namespace

void check_consistency(const Settings& settings, const std::string& name) {
  require(settings.parallel.sharding != plan::Sharding::none ||
              settings.parallel.shard_optimizer_over == plan::OptimizerGroup::shard_group,
          name, ": parallel.shard_optimizer_over = world divides optimizer state, which ",
          "parallel.sharding = none keeps whole; expected sharding optimizer, gradients or full");
  check_model(settings.model, name);
  check_parts(settings, name);
  check_pieces(settings, name);
  check_pipeline(settings, name);
  check_experts(settings, name);
  check_modules(settings, name);
  check_lora(settings, name);
  check_pairs(settings, name);
  check_documents(settings, name);
  check_precision(settings.precision, name);
  check_products(settings, name);
  check_fp8_gather(settings, name);
  check_sizes(settings, name);
  check_parameter_rules(settings, name);
}

void check_evaluation(const Settings& settings, const std::string& name) {
  const TrainingSettings& training = settings.training;
  require((training.evaluate_every > 0) == !training.evaluate.empty(), name,
          ": training.evaluate_every = ", training.evaluate_every,
          " with training.evaluate = ", shown(training.evaluate), "; expected both, or neither");
  if (training.evaluate.empty()) return;
  const std::string key = text(name, ": training.evaluate = ", shown(training.evaluate), " with ");
  require(settings.data.dataset == data::DatasetKind::tokens, key,
          "data.dataset = synthetic, whose tokens are no text; expected tokens");
  require(settings.data.documents == data::Documents::continued, key,
          "data.documents = separate is not supported; expected continue, or ostrakon-evaluate");
  require(settings.model.multi_token_depth == 0, key,
          "model.multi_token_depth = ", settings.model.multi_token_depth,
          " is not supported, as that reads targets as tokens; expected 0, or ostrakon-evaluate");
}

void check_validation(const Settings& settings, const std::string& name) {
  if (!settings.training.validate_ema) return;
  require(settings.ema > 0.0, name, ": training.validate_ema = true validates averages, and ",
          "training.ema = 0 keeps none; expected training.ema above 0, such as 0.999");
  // The last stage has a copy of the embedding, which follows updates alone.
  require(
      settings.pipeline == 1 || !settings.model.tie_embeddings, name,
      ": training.validate_ema = true with parallel.pipeline = ", settings.pipeline,
      " and model.tie_embeddings = true is not supported; expected false, and an evaluation of ",
      "weights-ema.h5 after the run");
}

void check_data(const Settings& settings, const std::string& name) {
  check_validation(settings, name);
  check_evaluation(settings, name);
  const data::DataSettings& data = settings.data;
  if (data.dataset != data::DatasetKind::tokens) return;
  require(!data.path.empty(), name, ": data.path is missing: data.dataset = tokens needs a token ",
          "file, made with ostrakon-data (data.dataset = synthetic needs none)");
  require(settings.training.validate_every == 0 || !data.validation_path.empty(), name,
          ": training.validate_every = ", settings.training.validate_every,
          " needs data.validation_path, which is empty");
  const std::size_t files = data::read_files(data.validation_path).size();
  require(files <= 1, name, ": data.validation_path = ", shown(data.validation_path), " names ",
          files, " files; expected one");
}

std::vector<model::Parameter> parameters_of(const Settings& settings) {
  const model::Decoder<float> decoder(settings.model, {1, settings.training.sequence_length});
  std::vector<model::Parameter> parameters;
  for (int u = 0; u < decoder.units(); ++u) {
    const std::vector<model::Parameter>& more = decoder.unit(u).parameters();
    parameters.insert(parameters.end(), more.begin(), more.end());
  }
  return parameters;
}

void check_ranks(const Settings& settings, int all_ranks, int ranks_per_node) {
  require(all_ranks % settings.pipeline == 0, "parallel.pipeline = ", settings.pipeline,
          " does not divide the ", ranks_text(all_ranks), " (",
          division(all_ranks, settings.pipeline), "); expected a divisor");
  const int ranks = all_ranks / static_cast<int>(settings.pipeline);  // ranks of a stage
  const int group = settings.shard_group;
  require(group <= 0 || ranks % group == 0, "parallel.shard_group = ", group,
          " does not divide the ", ranks_text(ranks), settings.pipeline > 1 ? " of a stage" : "");
  check_neighbours(settings, ranks);
  check_experts_on_ranks(settings, ranks);
  check_leaves(settings, ranks);
  const std::int64_t micro_batches = settings.leaves() * settings.tensor / ranks;
  require(settings.parallel.chunks == 1 || micro_batches <= settings.pipeline ||
              micro_batches % settings.pipeline == 0,
          "parallel.schedule = interleaved: the ", micro_batches,
          " micro-batches of a rank are no multiple of parallel.pipeline = ", settings.pipeline,
          "; expected a multiple, no more than ", settings.pipeline, ", or 1f1b");
  check_plan_length(settings, ranks);
  check_reshard(settings, ranks, ranks_per_node);
}

}  // namespace ostrakon::config
