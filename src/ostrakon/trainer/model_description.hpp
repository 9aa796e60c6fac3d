// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/base/facts.hpp>
#include <ostrakon/model/model.hpp>
#include <ostrakon/optim/optimizer.hpp>
#include <ostrakon/plan/ir/description.hpp>

namespace ostrakon::train {

/// Returns the model for training plans: its own description with the step's sums, and the matrices
/// that the optimizer updates as a whole.
plan::ModelDescription describe(const model::Model& model,
                                const optim::OptimizerSettings& optimizer);

/// Returns the bytes of orthogonalize's workspace in which a parameter's pieces are joined; 0 if it
/// is one piece.
std::int64_t joined_matrix_bytes(const model::Parameter& parameter);

/// Facts about a model's parameters on which ranks must agree, besides sizes, which plans have.
Facts facts_of(const model::Model& model);

}  // namespace ostrakon::train
