// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/base/names.hpp>
#include <ostrakon/math/work_items.hpp>
#include <ostrakon/model/unit.hpp>
#include <ostrakon/optim/parameter_rules.hpp>

namespace ostrakon::optim {

/// adamw: Loshchilov & Hutter 2019. sgd: with momentum (Polyak) or Nesterov's, as in Sutskever et
/// al. 2013. lion: Chen et al. 2023. muon: Jordan 2024, see muon.hpp. Weight decay is decoupled in
/// all of them: learning_rate * weight_decay * parameter. sign: a step by the gradient's sign, for
/// parameters with a model::Parameter::sign_rate; it can't be chosen for a whole model.
enum class OptimizerKind { adamw, sgd, lion, muon, sign };
constexpr Named<OptimizerKind> optimizer_names[] = {{OptimizerKind::adamw, "adamw"},
                                                    {OptimizerKind::sgd, "sgd"},
                                                    {OptimizerKind::lion, "lion"},
                                                    {OptimizerKind::muon, "muon"},
                                                    {OptimizerKind::sign, "sign"}};
constexpr const char* name(OptimizerKind kind) { return name_in(optimizer_names, kind); }

struct OptimizerSettings {
  OptimizerKind kind = OptimizerKind::adamw;
  double learning_rate = 3e-4;
  double weight_decay = 0.1;
  double beta1 = 0.9;       ///< adamw and lion: decay of the first moment (lion: within the sign)
  double beta2 = 0.95;      ///< adamw: decay of the second moment; lion: of its only one (0.99)
  double epsilon = 1e-8;    ///< adamw
  double momentum = 0.95;   ///< sgd (0: none, and no state) and muon
  bool nesterov = true;     ///< sgd and muon
  double clip_norm = 1.0;   ///< largest global gradient norm; 0: no clipping
  int muon_iterations = 5;  ///< Newton-Schulz iterations
  double muon_rate_factor = 1.0;          ///< factor on the learning rate of matrices under muon
  std::vector<ParameterRule> parameters;  ///< exceptions in learning rate and weight decay
};

/// Returns the rule that updates `parameter`: sign if it has a sign_rate; adamw if settings.kind is
/// muon and the parameter is not a matrix to be orthogonalized (Parameter::orthogonalize); else
/// settings.kind.
OptimizerKind rule_of(const OptimizerSettings& settings, const model::Parameter& parameter);

/// Arrays of state per parameter under `rule`: 0, 1 (first moment) or 2 (first and second).
int moments(const OptimizerSettings& settings, OptimizerKind rule);

/// Arrays of state per parameter in a plan: the maximum over the rules that settings.kind uses.
int moments(const OptimizerSettings& settings);

/// Arguments of one call of update().
struct UpdateStep {
  std::int64_t step = 1;  ///< counts from 1
  double learning_rate = 0.0;
  double weight_decay = 0.0;    ///< 0 for parameters that do not decay
  double gradient_scale = 1.0;  ///< multiplies the gradient first: clipping, 1 / loss scale
  // For 16-bit moments: the random bits that round element i of the call are a function of
  // (rounding_key, first_element + i, step), independent of the rank.
  std::uint64_t rounding_key = 0;  ///< math::random_key of the run's seed and the parameter's name
  std::int64_t first_element = 0;  ///< index in the parameter of the call's first element
};

/// One step of `rule`, which is not muon, on arrays that have equal sizes and do not overlap.
/// Moments that the rule does not have are not touched, and may be of any size, or null. The update
/// is elementwise: any partition gives the same bits. Moment: T, or bf16, rounded stochastically
/// (see rounding.hpp). Instantiated for (float, float), (float, bf16) and (double, double), in both
/// spaces; bitwise equal in both if kernels run on the host. Throws Error if sizes differ.
template <class T, class Moment, class Space>
void update(const math::ExecutorFor<Space>& where, OptimizerKind rule,
            const OptimizerSettings& settings, const UpdateStep& step, View<T*, Space> parameters,
            View<const T*, Space> gradients, View<Moment*, Space> first_moment,
            View<Moment*, Space> second_moment);

}  // namespace ostrakon::optim
