// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/products/gemm.hpp>
#include <ostrakon/model/chain.hpp>

// A model of your own: see docs/own-models.md. A model is a chain of units; a unit is a function
// that defines its computation, operation by operation. Values are matrices with the rows of a
// leaf, the samples that a rank computes at once:
//
//     using ostrakon::Builder, ostrakon::Value;
//     ostrakon::Units<float> units;
//     units.add("input", [](Builder<float>& b) { return b.floats(64); });
//     for (int i = 0; i < 4; ++i)
//       units.add("mlp." + std::to_string(i), [](Builder<float>& b, Value x) {
//         const Value n = b.norm(x, "norm");
//         return b.linear_onto(x, b.gelu(b.linear(n, "up", 256)), "down");   // x + MLP(norm(x))
//       });
//     units.add("loss", [](Builder<float>& b, Value x) { return b.losses(distance(x)); });
//     ostrakon::Chain<float> chain(std::move(units), {samples, sample_bytes});
//
// Parameters are declared where they are used. Backward, memory, saved and recomputed activations,
// and the division over tensor ranks follow from the operations. `distance` returns an Operation of
// your own: a kernel of forward, one of backward, and their inputs.
//
// <ostrakon/gradient_check.hpp> checks it, and <ostrakon/training.hpp> trains it. The public
// interface is what the headers in this folder declare or name here, and no other header.

namespace ostrakon {

// Units made of operations.
using math::NormKind;
using math::NormWeight;
using math::RotaryScaling;
using math::RotarySettings;
using math::RouterScore;
using model::Activation;
using model::AttentionSettings;
using model::Builder;
using model::DeltaNetSettings;
using model::ExpertSettings;
using model::HeadSettings;
using model::LinearSettings;
using model::MlpSettings;
using model::NormSettings;
using model::QueryKeyNorm;
using model::RouterBalance;
using model::Value;
template <class T>
using Units = model::UnitList<T>;

// Operations of your own, and the arguments of their kernels.
using model::Operation;
using model::OperationBackward;
using model::OperationForward;
using model::Takes;

// Parameters of operations.
using model::Initializer;
using model::Parameter;

// Arrays: Array<T> is View<T*>, an array, and View<T**> a row-major matrix (math/view.hpp); kernels
// run on Exec, in Memory.
using model::Array;
using model::BatchBytes;

// The chain, and the arguments of a Trainer.
using model::Chain;
using model::LeafSize;
using model::make_model;
using model::Model;

// Kernels with the same bits for the same shapes on any number of ranks. Write others with Kokkos;
// each element of a result must be computed in a fixed order.
using math::add_bias;
using math::column_sums;
using math::gemm;
using math::Transpose;
using model::for_each;

}  // namespace ostrakon
