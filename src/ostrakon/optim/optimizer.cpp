// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/optim/optimizer.hpp>

#include <algorithm>
#include <ostrakon/optim/rules.hpp>
#include <ostrakon/optim/update_loop.hpp>
#include <stdexcept>

namespace ostrakon::optim {
namespace {

/// Calls run(kernel's name, rule) with the rule as a type.
template <class T, class Run>
void with_rule(OptimizerKind rule, const OptimizerSettings& settings, const UpdateStep& step,
               const Run& run) {
  switch (rule) {
    case OptimizerKind::adamw:
      return run("adamw", AdamwRule<T>(settings, step));
    case OptimizerKind::lion:
      return run("lion", LionRule<T>(settings, step));
    case OptimizerKind::sgd:
      if (settings.momentum != 0.0) return run("sgd", SgdRule<T>(settings, step));
      return run("sgd", PlainRule<T>(step.learning_rate * step.gradient_scale,
                                     step.learning_rate * step.weight_decay));
    case OptimizerKind::sign:
      return run("sign", SignRule<T>(step));
    case OptimizerKind::muon:
      break;
  }
  throw std::logic_error("update: muon needs the whole matrix: see muon.hpp");
}

}  // namespace

OptimizerKind rule_of(const OptimizerSettings& settings, const model::Parameter& parameter) {
  if (parameter.sign_rate > 0.0) return OptimizerKind::sign;
  const bool takes_muon = parameter.shape.size() == 2 && parameter.orthogonalize;
  const bool falls_back = settings.kind == OptimizerKind::muon && !takes_muon;
  return falls_back ? OptimizerKind::adamw : settings.kind;
}

int moments(const OptimizerSettings& settings, OptimizerKind rule) {
  switch (rule) {
    case OptimizerKind::adamw:
      return 2;
    case OptimizerKind::lion:
    case OptimizerKind::muon:
      return 1;
    case OptimizerKind::sgd:
      return settings.momentum == 0.0 ? 0 : 1;
    case OptimizerKind::sign:
      return 0;
  }
  throw std::logic_error("unknown optimizer");
}

int moments(const OptimizerSettings& settings) {
  const OptimizerKind of_vectors = rule_of(settings, model::Parameter());
  return std::max(moments(settings, settings.kind), moments(settings, of_vectors));
}

template <class T, class Moment, class Space>
void update(const math::ExecutorFor<Space>& where, OptimizerKind rule,
            const OptimizerSettings& settings, const UpdateStep& step, View<T*, Space> parameters,
            View<const T*, Space> gradients, View<Moment*, Space> first_moment,
            View<Moment*, Space> second_moment) {
  with_rule<T>(rule, settings, step, [&](const char* name, const auto& typed_rule) {
    update_all(where, name, typed_rule, {step.rounding_key, step.step}, step.first_element,
               parameters, gradients, first_moment, second_moment);
  });
}

#define OSTRAKON_INSTANTIATE(T, Moment, Space)                                                     \
  template void update<T, Moment, Space>(                                                          \
      const math::ExecutorFor<Space>&, OptimizerKind, const OptimizerSettings&, const UpdateStep&, \
      View<T*, Space>, View<const T*, Space>, View<Moment*, Space>, View<Moment*, Space>);
OSTRAKON_FOR_ALL_UPDATES(OSTRAKON_INSTANTIATE)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::optim
