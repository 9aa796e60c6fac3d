// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/gemm.hpp>
#include <ostrakon/model/chain.hpp>

// A model of your own: see docs/own-models.md. A model is a chain of units, and a unit is a
// function that says what is computed, operation by operation. Values are matrices with the rows of
// a leaf, the samples that a rank computes at once:
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
// Parameters are declared where they are used. Backward, memory, what is saved or computed again,
// and how tensor ranks divide the work follow. `distance` returns an Operation of your own: a
// kernel of forward and one of backward, and what they read.
//
// With <ostrakon/gradient_check.hpp> it is checked, and with <ostrakon/training.hpp> trained.
// Public is what the headers in this folder declare or name here, and no other header.

namespace ostrakon {

// Units by what they compute.
using math::NormKind;
using model::AttentionSettings;
using model::Builder;
using model::LinearSettings;
using model::NormSettings;
using model::Value;
template <class T>
using Units = model::UnitList<T>;

// Operations of your own, and what their kernels are given.
using model::Operation;
using model::OperationBackward;
using model::OperationForward;
using model::Takes;

// A unit of your own that no operations make: forward and backward of all of it, by hand, in
// buffers whose sizes it states.
template <class T>
using Unit = model::ChainUnit<T>;
using UnitDescription = model::ChainUnitDescription;
using model::BackwardCall;
using model::ForwardCall;
using model::UnitCall;
using plan::Phase;
using plan::Phases;

// Parameters of operations and of units.
using model::Initializer;
using model::Parameter;

// Arrays: Array<T> is View<T*>, an array, and View<T**> a row-major matrix (math/view.hpp); kernels
// run on Exec, in Memory.
using model::Array;
using model::as_matrix;
using model::Bytes;

// The chain, and what a Trainer takes.
using model::Chain;
using model::LeafSize;
using model::make_model;
using model::Model;

// Kernels that have the same bits for the same shapes, whatever the number of ranks. Others are
// written with Kokkos; each element of a result has to be computed in one order.
using math::add_bias;
using math::column_sums;
using math::gemm;
using math::Transpose;
using model::for_each;

}  // namespace ostrakon
