// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/model/unit.hpp>
#include <type_traits>

namespace ostrakon::model {

/// Buffers of a type that was known at run time only, as those of T.
template <class T>
UnitBuffers<T> typed(const UnitBuffers<void>& buffers) {
  static_assert(std::is_same<compute_t<T>, float>::value, "gradients are float");
  UnitBuffers<T> result;
  result.phase = buffers.phase;
  result.recomputes = buffers.recomputes;
  result.batch = buffers.batch;
  result.exchanged = buffers.exchanged;
  result.handed = buffers.handed;
  result.parameters = static_cast<const T*>(buffers.parameters);
  result.frozen = static_cast<const T*>(buffers.frozen);
  result.tied_parameters = static_cast<const T*>(buffers.tied_parameters);
  result.tied_frozen = static_cast<const T*>(buffers.tied_frozen);
  result.input = static_cast<const T*>(buffers.input);
  result.output = static_cast<T*>(buffers.output);
  result.saved = static_cast<T*>(buffers.saved);
  result.workspace = static_cast<T*>(buffers.workspace);
  result.gradient = static_cast<T*>(buffers.gradient);
  result.parameter_gradients = static_cast<float*>(buffers.parameter_gradients);
  result.tied_gradients = static_cast<float*>(buffers.tied_gradients);
  return result;
}

}  // namespace ostrakon::model
