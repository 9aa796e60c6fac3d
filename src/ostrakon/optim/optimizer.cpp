// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/optim/optimizer.hpp>

#include <algorithm>
#include <ostrakon/optim/rules.hpp>
#include <ostrakon/optim/update_loop.hpp>
#include <stdexcept>

namespace ostrakon::optim {

namespace {

/// run(kernel's name, rule) with the rule as a type.
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
    case OptimizerKind::muon:
      break;
  }
  throw std::logic_error("update: muon needs the whole matrix: see muon.hpp");
}

}  // namespace

OptimizerKind rule_of(const OptimizerSettings& settings, const model::Parameter& parameter) {
  const bool takes_muon = parameter.shape.size() == 2 && parameter.orthogonalize;
  const bool falls_back = settings.kind == OptimizerKind::muon && !takes_muon;
  return falls_back ? OptimizerKind::adamw : settings.kind;
}

int moments(const OptimizerSettings& settings, OptimizerKind rule) {
  if (rule == OptimizerKind::adamw) return 2;
  return rule == OptimizerKind::sgd && settings.momentum == 0.0 ? 0 : 1;
}

int moments(const OptimizerSettings& settings) {
  const OptimizerKind of_vectors = rule_of(settings, model::Parameter());
  return std::max(moments(settings, settings.kind), moments(settings, of_vectors));
}

template <class T, class Moment>
void update(const Exec& exec, OptimizerKind rule, const OptimizerSettings& settings,
            const UpdateStep& step, T* parameters, const T* gradients, Moment* first_moment,
            Moment* second_moment, std::int64_t count) {
  with_rule<T>(rule, settings, step, [&](const char* name, const auto& typed_rule) {
    update_all(exec, name, typed_rule, {step.rounding_key, step.step}, step.first_element,
               parameters, gradients, first_moment, second_moment, count);
  });
}

template <class T, class Moment>
void host::update(OptimizerKind rule, const OptimizerSettings& settings, const UpdateStep& step,
                  T* parameters, const T* gradients, Moment* first_moment, Moment* second_moment,
                  std::int64_t count) {
  with_rule<T>(rule, settings, step, [&](const char*, const auto& typed_rule) {
    update_run(typed_rule, {step.rounding_key, step.step}, step.first_element, parameters,
               gradients, first_moment, second_moment, count);
  });
}

#define OSTRAKON_INSTANTIATE(T, Moment)                                                    \
  template void update<T, Moment>(const Exec&, OptimizerKind, const OptimizerSettings&,    \
                                  const UpdateStep&, T*, const T*, Moment*, Moment*,       \
                                  std::int64_t);                                           \
  template void host::update<T, Moment>(OptimizerKind, const OptimizerSettings&,           \
                                        const UpdateStep&, T*, const T*, Moment*, Moment*, \
                                        std::int64_t);
OSTRAKON_INSTANTIATE(float, float)
OSTRAKON_INSTANTIATE(float, bf16)
OSTRAKON_INSTANTIATE(double, double)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::optim
