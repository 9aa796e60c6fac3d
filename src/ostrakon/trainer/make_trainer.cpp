// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/trainer/make_trainer.hpp>

#include <ostrakon/base/error.hpp>
#include <ostrakon/math/fp8/product.hpp>
#include <ostrakon/model/decoder_model.hpp>
#include <ostrakon/trainer/devices.hpp>
#include <ostrakon/trainer/product_algorithms.hpp>
#include <ostrakon/trainer/threads.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace ostrakon::train {
namespace {

/// Throws Error, the same on all ranks, where two levels of collectives are required but nodes are
/// irregular.
void require_regular_nodes(const config::Settings& settings, const mesh::Mesh& mesh) {
  const bool is_asked = settings.parallel.hierarchical.kind == plan::Hierarchical::always;
  if (!is_asked || mesh.ranks_per_node() > 0 || settings.shard_group == mesh::node_group) return;
  throw CollectiveError(
      text("parallel.hierarchical_collectives = always: the ", mesh.nodes(),
           " nodes don't have equally many ranks each, numbered one after the other; start ranks "
           "node by node, the same number on each, or leave it at auto"));
}

math::LibraryUse library_use(config::AttentionChoice choice) {
  switch (choice) {
    case config::AttentionChoice::own:
      return math::LibraryUse::never;
    case config::AttentionChoice::cudnn:
      return math::LibraryUse::always;
    case config::AttentionChoice::automatic:
      break;
  }
  return math::LibraryUse::automatic;
}

}  // namespace

model::LeafShape leaf_shape(const config::Settings& settings) {
  const config::TrainingSettings& training = settings.training;
  const bool has_pairs = settings.data.objective == data::Objective::dpo;
  const bool has_documents = has_pairs || settings.data.documents == data::Documents::separate;
  model::LeafShape shape{training.micro_batch_size,
                         training.sequence_length,
                         settings.context,
                         training.context_grain,
                         training.leaf == config::Leaf::sequence,
                         settings.tensor,
                         settings.tensor_grain,
                         settings.tensor_chunks,
                         settings.expert,
                         settings.expert_capacity,
                         settings.parallel.schedule == plan::ScheduleKind::zero_bubble,
                         settings.processor.kernels,
                         has_documents,
                         has_pairs || (has_documents && settings.data.restart_positions),
                         math::is_of_device(settings.processor.kernels),
                         settings.precision.products};
  shape.attention = library_use(settings.runtime.attention);
  shape.loss = {training.label_smoothing, training.z_loss};
  if (has_pairs) shape.pair_beta = training.dpo_beta;
  return shape;
}

std::unique_ptr<model::Model> make_decoder(const config::Settings& settings) {
  require(
      !settings.chooses_recompute,
      "memory.activation_checkpointing = auto: ostrakon-train, ostrakon-plan and ostrakon-bench "
      "choose, and this program does not; expected another value, such as in the deck.yaml of "
      "a run");
  const std::vector<optim::ParameterRule>& rules = settings.optimizer.parameters;
  return model::make_decoder(
      settings.precision.gather, settings.model, leaf_shape(settings), settings.recompute,
      [rules](const std::string& name) { return optim::is_frozen(rules, name); });
}

TrainerSettings trainer_settings(const config::Settings& settings) {
  TrainerSettings own;
  static_cast<config::StepChoices&>(own) = settings.training;
  static_cast<config::UpdateChoices&>(own) = settings;
  own.policy = settings.parallel;
  own.sum_grain = config::micro_batch_grain(settings.training);
  own.checkpoint_staging = config::saves_in_background(settings.checkpoint);
  own.loss_scale = settings.precision.loss_scale;
  own.single_communicators = settings.runtime.communicators == config::CommunicatorsChoice::single;
  own.graphs = settings.runtime.graphs == config::GraphsChoice::automatic;
  own.audit_every = settings.runtime.audit;
  own.collective_timeout = settings.runtime.collective_timeout;
  own.products_file = settings.runtime.products_file;
  own.subnormals = settings.runtime.subnormals;
  return own;
}

TrainerSettings trainer_settings(const config::Settings& settings, mesh::Mesh& mesh) {
  require_regular_nodes(settings, mesh);
  mesh.world().run_collectively([&] {
    require_subnormals(settings.runtime.subnormals, "runtime.subnormals = flush", "keep");
    require_product_file(settings.runtime.products_file);
  });
  if (math::is_8bit(settings.precision.products.dtype))
    mesh.world().run_collectively([&] {
      const math::ProductDType dtype = settings.precision.products.dtype;
      const std::string why = math::why_no_fp8(dtype);
      require(why.empty(), "precision.products = ", math::name(dtype), ": ", why,
              "; expected auto");
    });
  TrainerSettings own = trainer_settings(settings);
  own.streams = choose_streams(settings, mesh);
  const ChosenTransport transport = choose_transport(settings, mesh);
  own.transport = transport.kind;
  own.shared_device = transport.shared;
  return own;
}

Trainer make_trainer(const config::Settings& settings, mesh::Mesh& mesh) {
  if (settings.processor.kernels != math::kernel_form)
    throw std::logic_error("a plan for other kernels than this build's can't be run");
  std::unique_ptr<model::Model> decoder = make_decoder(settings);
  const TrainerSettings own = trainer_settings(settings, mesh);
  return Trainer(std::move(decoder), own, mesh);
}

}  // namespace ostrakon::train
