// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/plan/ir/policy.hpp>
#include <ostrakon/plan/ir/step_plan.hpp>
#include <string>
#include <vector>

namespace ostrakon::simulate {

/// The software that runs a step: how it differs from Ostrakon in what it computes and sends, and
/// in the time that this takes. It is the section `stack` of a machine file, or a file of
/// machines/stacks. Defaults are Ostrakon's own. Keys of files have the names of the members.
struct Stack {
  std::string name = "Ostrakon";

  // Bytes that kernels read and write, and kernels, as multiples of Ostrakon's.
  double row_traffic = 1.0;         ///< kernels without products: above 1 where fewer are fused
  double row_kernels = 1.0;         ///< the number of these kernels
  double expert_row_traffic = 1.0;  ///< row_traffic besides, in units with experts
  /// row_traffic besides, of rounding operands of products to 8 bits, and the number of its
  /// kernels: below 1 where the kernels that write operands round them.
  double rounding_traffic = 1.0;
  double update_traffic = 1.0;      ///< updates of the optimizer
  double accumulate_traffic = 1.0;  ///< sums over micro-batches; 0: the products add them up
  double convert_traffic = 1.0;     ///< conversions between dtypes

  double launch_seconds = 0.0;  ///< of each kernel, besides the machine's own
  double attention_rate = 1.0;  ///< as a multiple of the machine's rate of attention
  double slowdown = 1.0;        ///< as a multiple of the machine's slowdown beside collectives
  /// Attention's scores go through memory, and the products with them have no causal half.
  bool attention_in_memory = false;
  bool dropout = false;  ///< of the outputs of attention and MLP; in memory of the scores, too

  // What backward computes again of a block's forward where the deck keeps its activations, as a
  // share of its products, of its other kernels, and of attention.
  double again_products = 0.0, again_rows = 0.0, again_attention = 0.0;
  /// A block of which the deck keeps no activations is computed again as a whole; otherwise without
  /// the last product, whose output nothing reads.
  bool recomputes_all = false;
  bool keeps_logits = false;  ///< with tensor ranks; otherwise backward computes them again
  /// Parameters are gathered in fp32, and converted to the compute dtype in each pass.
  bool autocast = false;

  // Sums over ranks.
  double sum_bits = 0.0;        ///< at most so many, of gradients; 0: as Ostrakon
  double exchange_bits = 0.0;   ///< the same of activations between tensor ranks
  bool reduces_once = false;    ///< gradients of all micro-batches are summed over ranks together
  bool reduces_at_end = false;  ///< when all backward is done
  bool all_reduces = false;  ///< sums over replicas are whole at once; Ostrakon gathers them later
  bool all_reduce_trees = false;  ///< double trees over nodes, where they are faster than rings
  bool hides_updates = false;     ///< the gather of updated parameters, behind the next forward
  double update_calls = 1.0;  ///< calls that gather a unit's updated parameters; all units together
                              ///< make one for each rank of the group at most

  // Exchanges of activations, and messages.
  bool exchange_rings = false;  ///< tensor ranks sum by rings of a library, not by an all-to-all
  bool exchanges_in_order = false;  ///< nothing is computed during exchanges of tensor ranks
  double exchange_exposed = 1.0;    ///< the share of their time that products do not hide
  bool whole_rows = false;          ///< tensor ranks all compute the norms of all rows
  bool whole_vectors = false;       ///< tensor ranks all have the vectors of norms and biases
  bool context_ring = false;        ///< keys and values are passed on behind attention
  bool blocking_messages = false;   ///< ranks compute nothing during messages between stages
};

/// A number or a flag of a stack, as files have it.
struct StackKey {
  const char* key;
  double Stack::*number = nullptr;  ///< or a flag:
  bool Stack::*flag = nullptr;
  double unit = 1.0;               ///< the member is the number of the file times this
  double least = 0.0, most = 1.0;  ///< in the unit of the file
  const char* what;
};
const std::vector<StackKey>& stack_keys();

/// Whether nothing differs from Ostrakon but the name.
bool is_ostrakon(const Stack& stack);

/// Returns the policy by which the stack's steps are planned.
plan::Policy planned_by(const Stack& stack, plan::Policy policy,
                        const plan::ModelDescription& model);

/// Returns the model, which multiplies in 8 bits, with the stack's rounding of operands.
/// `as_stored`: the same model without products in 8 bits; it has less work by the rounding.
plan::ModelDescription rounded_by(const Stack& stack, plan::ModelDescription model,
                                  const plan::ModelDescription& as_stored);

/// Returns the model with what the stack computes and exchanges in its units. Throws Error where
/// the stack computes activations again and `policy` too.
plan::ModelDescription computed_by(const Stack& stack, plan::ModelDescription model,
                                   const plan::Policy& policy);

/// Adds the waits that the stack has besides, to a plan that is only simulated from then on. Throws
/// Error where sums of gradients wait for all backward, and the plan has them for each micro-batch.
void order_as(const Stack& stack, plan::StepPlan& plan);

}  // namespace ostrakon::simulate
