// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/model/unit.hpp>
#include <type_traits>

namespace ostrakon::model {

/// Buffers of a type that was known at run time only, as those of T; or the other way round, with
/// T = void.
template <class T, class From>
UnitBuffers<T> typed(const UnitBuffers<From>& buffers) {
  static_assert(std::is_same<typename SumOf<T>::type, typename SumOf<From>::type>::value,
                "gradients are float");
  using Element = typename UnitBuffers<T>::Element;
  UnitBuffers<T> result;
  result.phase = buffers.phase;
  result.recomputes = buffers.recomputes;
  result.decoded = buffers.decoded;
  result.context_rank = buffers.context_rank;
  result.tensor_rank = buffers.tensor_rank;
  result.expert_rank = buffers.expert_rank;
  result.batch = buffers.batch;
  result.recv_buffer = buffers.recv_buffer;
  result.second_recv_buffer = buffers.second_recv_buffer;
  result.send_buffer = buffers.send_buffer;
  result.exchange_is_empty = buffers.exchange_is_empty;
  result.parameters = view_as<Element>(buffers.parameters);
  result.frozen = view_as<Element>(buffers.frozen);
  result.tied_parameters = view_as<Element>(buffers.tied_parameters);
  result.tied_frozen = view_as<Element>(buffers.tied_frozen);
  result.input = view_as<Element>(buffers.input);
  result.output = view_as<Element>(buffers.output);
  result.saved = buffers.saved;
  result.deferred = buffers.deferred;
  result.counts = buffers.counts;
  result.workspace = buffers.workspace;
  result.gradient = view_as<Element>(buffers.gradient);
  result.parameter_gradients = buffers.parameter_gradients;
  result.tied_gradients = buffers.tied_gradients;
  return result;
}

/// A batch begins with the tokens of `rows` rows, and then their targets, where it has any, and
/// then where their documents begin, if the leaf has documents.
template <class T>
UnitBuffers<T> with_tokens(UnitBuffers<T> buffers, std::int64_t rows, bool has_documents = false) {
  const View<const std::int32_t*> batch = view_as<std::int32_t>(buffers.batch);
  if (batch.size() >= rows) buffers.tokens = batch.range(0, rows);
  if (batch.size() >= 2 * rows) buffers.targets = batch.range(rows, 2 * rows);
  if (has_documents && batch) buffers.document_begins = batch.range(2 * rows, 3 * rows);
  return buffers;
}

}  // namespace ostrakon::model
