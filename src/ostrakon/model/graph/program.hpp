// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/model/graph/graph.hpp>
#include <ostrakon/plan/ir/description.hpp>
#include <set>
#include <vector>

namespace ostrakon::model::graph {

/// The buffers of UnitBuffers in which values lie.
enum class Home : std::uint8_t {
  workspace,
  input,
  output,
  gradient,
  saved,
  deferred,
  send_buffer,        ///< the phase writes it for the exchange behind it
  recv_buffer,        ///< of the first exchange that the phase reads
  second_recv_buffer  ///< of the second exchange that the phase reads
};

/// A matrix in one of them, rows `stride` elements apart.
struct Place {
  Home home = Home::workspace;
  std::int64_t offset = 0;  ///< bytes of the first element
  std::int64_t rows = 0, columns = 0, stride = 0;
  Element element = Element::number;
  bool is_cached = false;    ///< Value::is_cached
  bool is_per_run = false;   ///< Value::is_per_run
  std::int64_t per_row = 0;  ///< Value::per_row
  /// Where it lies in the workspace if nothing is handed over: in a forward for what it saves alone
  /// that nobody reads. -1: nowhere.
  std::int64_t spare = -1;
  /// Matrices of this size, and bytes from one to the next; 0: a call has one of them at a time.
  std::int64_t pieces = 1, piece_stride = 0;
  /// Where calls take its rows in runs: rows from one run to the next, and how many runs it has;
  /// rows are those of all. 0: calls take all rows at once.
  std::int64_t run_stride = 0, runs = 1;
};

/// A call, and where all that it works with lies.
struct PlacedCall {
  Call call;
  std::vector<Place> reads, writes;
  std::vector<Place> weights;          ///< copies of weights, of those entries of Call::weights
  std::vector<Place> gradients;        ///< the same of gradients
  std::vector<Place> scratch;          ///< of bytes
  std::vector<PlacedCall> parts = {};  ///< of Call::parts
  bool saves = true;                   ///< of forward: whether what is saved takes it
  int sum = -1;  ///< of a call by piece: which of `writes` is a sum over pieces; -1: none
  Place tree;    ///< bytes for sums of some pieces that wait for others
  int loop = 0;  ///< neighbouring calls by piece with this number run for one piece after the other
};

/// What a unit does in each phase, in order, and the sizes of the buffers for it.
struct Program {
  std::vector<std::vector<PlacedCall>> forward, backward;
  std::vector<Weight> weights;
  plan::Phases forward_phases, backward_phases;
  int deferred_phases = 0;
  std::int64_t saved_bytes = 0, deferred_bytes = 0;
  std::set<int> kept = {};        ///< values of forward that lie at the begin of what is saved,
  std::int64_t kept_bytes = 0;    ///< and where they end
  std::int64_t output_bytes = 0;  ///< of all outputs
  double gradient_flops = 0.0;
  bool can_add_gradients = false;      ///< whether all calls with gradients of weights can
  bool backward_reads_weights = true;  ///< of the unit itself
  bool backward_reads_tied = true;     ///< weights of the unit that it is tied to
  Setting setting;                     ///< Graph::setting
};

/// Bytes between arrays in a buffer are multiples of this many elements.
constexpr std::int64_t array_alignment = 64;

/// Runs the passes. Throws std::logic_error where one can't keep its guarantee. `kept`: values that
/// forward saves besides those that backward reads, as another program of the graph does.
Program derive(Graph graph, const std::set<int>& kept = {});

}  // namespace ostrakon::model::graph
