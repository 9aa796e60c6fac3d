// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <ostrakon/model/graph/graph.hpp>
#include <vector>

namespace ostrakon::model::graph {

/// Has ranks share the work of a graph. Each operation takes its inputs as it computes with them
/// (Distribution); where a value is had otherwise, an exchange is appended that brings it: parts to
/// whole, a gather; addends to rows, a sum of which each rank gets its rows. Each is the other's
/// gradient, so that no exchange of backward is written anywhere. Guarantee: a sum is exchanged
/// once, whatever takes it, and every call finds the layout that its operation declares.
class Division {
 public:
  /// How tensor ranks have `v` for an operation that takes it so: `v`, or what an exchange makes of
  /// it. Sums that become rows are in the type of sums still. Rows are gathered for each operation
  /// that takes them whole, as its gradient is a sum over pieces of its own: two would be added up
  /// before that sum on one rank, and behind it on several. Without pieces always `v`.
  int redistribute(Graph& graph, int v, Distribution to);
  /// Values with the rows of all parts of sequences, which travel in one message. Where sequences
  /// are decoded, with `cached_rows` rows, of the latest tokens of all, as columns of one array.
  std::vector<int> whole_over_parts(Graph& graph, const std::vector<int>& own,
                                    std::int64_t cached_rows);
  /// A call that gathers the pieces of all tensor ranks, one after the other, as the one value that
  /// it writes. It has no gradient.
  Call gather_pieces(Graph& graph, int own);
  /// A weight that every row takes whole, as entries of Call::weights and Call::gradients name it:
  /// where it is cut, a value, to which tensor ranks gather their pieces. `is_summed`: ranks have
  /// addends of its gradient, which they sum up. `leaves`: where it is cut, its gradient comes as
  /// so many addends, one after the other; pieces and ranks are summed for each of them, and they
  /// are added up last. Operations on columns need that, as pieces and ranks have some for every
  /// leaf; of rows they have some leaves, or equal parts of each.
  int whole_weight(Graph& graph, int weight, bool is_summed, std::int64_t leaves = 1);

  /// Gathers those weights in one message, before all else.
  void gather_weights(Graph& graph);

 private:
  struct WholeWeight {
    int value;
    bool is_summed;
    std::int64_t leaves;  ///< of its gradient
  };

  std::map<int, int> summed_;           // over tensor ranks, of addends
  std::map<int, int> whole_;            // over parts, of rows
  std::map<int, WholeWeight> weights_;  // by weight
};

/// Says of the calls of an operation whether they compute one piece at a time, and then what they
/// cost on this rank; and which products go by runs of rows: a product in 16 bits is never divided
/// otherwise by the number of ranks.
void set_pieces(const Graph& graph, Operation& operation);
/// Whether a call takes or makes columns of pieces. An exchange has all of them.
bool is_by_piece(const Graph& graph, const Call& call);

}  // namespace ostrakon::model::graph
