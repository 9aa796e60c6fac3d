// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/trainer/trainer_checks.hpp>

#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/comm/agreement.hpp>
#include <ostrakon/math/products/gemm.hpp>
#include <ostrakon/math/random.hpp>
#include <ostrakon/plan/ir/levels.hpp>
#include <ostrakon/trainer/model_description.hpp>
#include <ostrakon/trainer/threads.hpp>

namespace ostrakon::train {
namespace {

/// Throws Error where a rule matches no parameter: it would silently have no effect.
void require_match(const std::string& pattern, const model::Model& model) {
  std::string first;
  for (int u = 0; u < model.units(); ++u)
    for (const model::Parameter& parameter : model.parameters(u)) {
      if (plan::matches(pattern, parameter.full_name())) return;
      if (first.empty()) first = parameter.full_name();
    }
  throw Error(text("optimizer.parameters: the pattern '", pattern,
                   "' matches no parameter of the model, ",
                   first.empty() ? "which has none" : "the first of which is ", first));
}

/// Throws Error where the model and the settings contradict each other.
void require_possible(const TrainerSettings& settings, const model::Model& model) {
  const std::int64_t samples = model.loss_terms().samples;
  require(samples == settings.micro_batch_size, "the model is made for leaves of ", samples,
          " samples, but micro_batch_size is ", settings.micro_batch_size);
  for (int u = 0; u < model.units(); ++u)
    for (const model::Parameter& parameter : model.parameters(u))
      require(parameter.frozen ||
                  !optim::is_frozen(settings.optimizer.parameters, parameter.full_name()),
              "optimizer.parameters freezes ", parameter.full_name(),
              ", which the model trains; expected it to be frozen where the model is made");
  for (const optim::ParameterRule& rule : settings.optimizer.parameters)
    require_match(rule.pattern, model);
}

/// Throws CollectiveError where ranks were given different settings or parameters.
void require_alike(const TrainerSettings& settings, const model::Model& model,
                   comm::Communicator& world) {
  comm::require_agreement(world, "ranks have different settings", facts_of(settings));
  // Parameters may be thousands, so ranks compare one digest, and the parameters only if it
  // differs.
  const Facts facts = facts_of(model);
  const Facts digest = {{"digest", format_hex(math::random_key(0, pack_facts(facts)))}};
  if (!comm::disagreement(world, digest).empty())
    comm::require_agreement(world, "ranks have different models", facts);
}

/// Throws Error unless an exchange is among the ranks that share samples, among tensor ranks, among
/// the ranks that share the unit's parts, or among the latter two together.
void require_exchange(const plan::Exchange& exchange, const plan::UnitDescription& description,
                      int parts, int tensor_ranks) {
  using plan::ExchangeKind;
  if (exchange.span.ranks == 1) return;
  const std::string& unit = description.name;
  const plan::Span expected{plan::Axis::shard, parts}, tensor{plan::Axis::tensor, tensor_ranks};
  const plan::Span of_parts{plan::Axis::shard, description.expert_ranks};
  const plan::Span of_both{plan::Axis::tensor_shard, tensor_ranks * description.expert_ranks};
  require(exchange.span == expected || exchange.span == tensor || exchange.span == of_parts ||
              exchange.span == of_both,
          "unit ", unit, " exchanges activations over ", exchange.span.ranks,
          " ranks; expected the ", parts, parts == 1 ? " rank" : " neighbouring ranks",
          " that the model's samples are divided over (Model::context_ranks)",
          description.expert_ranks > 1
              ? text(", or the ", description.expert_ranks,
                     " that share the unit (UnitDescription::expert_ranks)")
              : "",
          tensor_ranks > 1 ? text(", or the ", tensor_ranks, " tensor ranks (Model::tensor_ranks)")
                           : "",
          description.expert_ranks > 1 && tensor_ranks > 1 ? ", or both of these" : "");
  const bool is_float = exchange.element_bytes == sizeof(float);
  require(is_float || (exchange.kind == ExchangeKind::gather && exchange.element_bytes == 2),
          "unit ", unit, ": ", plan::name(exchange.kind), " of elements of ",
          exchange.element_bytes, " bytes; expected 4, or 2 in a gather");
}

void require_exchanges(const plan::ModelDescription& model, int parts, int tensor_ranks) {
  for (const plan::UnitDescription& unit : model.units)
    for (const plan::Phases* phases :
         {&unit.forward, &unit.backward, &unit.deferral.backward_at_once})
      for (const plan::Phase& phase : *phases)
        if (phase.then) require_exchange(*phase.then, unit, parts, tensor_ranks);
}

}  // namespace

void require_same_kernels(std::int64_t audit_every, const Facts& own, comm::Communicator& world) {
  if (audit_every == 0) return;
  comm::require_agreement(
      world,
      text("runtime.audit = ", audit_every,
           ": expected 0, or ranks that compute with the same kernels, as an audit compares bits"),
      own);
}

StepSettings checked(const TrainerSettings& settings, const model::Model& model,
                     comm::Communicator& world) {
  require_alike(settings, model, world);
  world.run_collectively([&] {
    check(settings);
    require_possible(settings, model);
  });
  if (settings.audit_every > 0) {
    // A model does not say whether it multiplies in 8 bits, so that kernel is compared in any case.
    const KernelUse use = {model.dtype(), math::ProductDType::fp8, settings.subnormals};
    require_same_kernels(settings.audit_every, kernel_facts(use, math::kernel_threads()), world);
  }
  return StepSettings(settings, model);
}

Programs agree_on_programs(const plan::ModelDescription& model, const plan::Policy& policy,
                           mesh::Mesh& mesh, bool audits) {
  Programs programs;
  mesh.world().run_collectively([&] {
    require_exchanges(model, policy.context_ranks, policy.tensor_ranks);
    plan::require_tensor_in_node(policy, mesh.nodes(), mesh.ranks_per_node());
    programs = make_programs(model, mesh.world().size(), policy, mesh.pipeline().rank(), audits);
  });
  return programs;
}

}  // namespace ostrakon::train
