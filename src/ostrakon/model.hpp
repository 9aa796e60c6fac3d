// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/gemm.hpp>
#include <ostrakon/model/chain.hpp>

// A model of your own: see docs/own-models.md. A model is a chain of units. A unit describes its
// sizes, and computes forward and backward in buffers that it is given:
//
//     template <class T>
//     class Scale final : public ostrakon::Unit<T> {   // y = a x, with a scalar parameter a
//      public:
//       explicit Scale(std::int64_t elements) : n_(elements) {}
//       ostrakon::UnitDescription describe() const override;
//       void forward(const ostrakon::ForwardCall<T>& call) const override;
//       void backward(const ostrakon::BackwardCall<T>& call) const override;
//       ...
//     };
//     std::vector<std::unique_ptr<ostrakon::Unit<float>>> units = ...;
//     ostrakon::Chain<float> chain(std::move(units), {samples, sample_bytes});
//
// With <ostrakon/gradient_check.hpp> it is checked, and with <ostrakon/training.hpp> trained.
// Public is what the headers in this folder declare or name here, and no other header.

namespace ostrakon {

// What you write, and what it is given.
template <class T>
using Unit = model::ChainUnit<T>;
using UnitDescription = model::ChainUnitDescription;
using model::BackwardCall;
using model::ForwardCall;
using model::UnitCall;

// Parts of a description.
using model::Initializer;
using model::Parameter;
using plan::Phase;
using plan::Phases;

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
