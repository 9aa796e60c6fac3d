// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/base/facts.hpp>
#include <ostrakon/model/model.hpp>
#include <ostrakon/optim/optimizer.hpp>
#include <ostrakon/plan/description.hpp>

namespace ostrakon::train {

/// The model as plans of training see it: its own description with the step's sums, and the
/// matrices that the optimizer updates as a whole.
plan::ModelDescription describe(const model::Model& model,
                                const optim::OptimizerSettings& optimizer);

/// Counts the bytes of orthogonalize's workspace in which a parameter's pieces are joined; none
/// where it is in one.
std::int64_t joined_matrix_bytes(const model::Parameter& parameter);

/// What ranks must have alike of a model besides its sizes, which plans tell: its parameters.
Facts facts_of(const model::Model& model);

}  // namespace ostrakon::train
