// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/simulate/stack.hpp>

#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <set>
#include <tuple>

namespace ostrakon::simulate {
namespace {

using plan::Action;
using plan::Axis;
using plan::Exchange;
using plan::KernelWork;
using plan::Kind;
using plan::ModelDescription;
using plan::Phase;
using plan::Phases;
using plan::Policy;
using plan::StepPlan;
using plan::UnitDescription;

/// A pass over a row of a block's width that all tensor ranks make where they have whole rows:
/// reads and writes of norms, residual sums and dropout.
constexpr double row_passes = 10.0;
/// Passes over the scores of attention in memory: softmax, and dropout of its result.
constexpr double score_passes = 2.0, dropout_passes = 2.5;
/// Backward makes so many times the passes over scores that forward makes.
constexpr double backward_score_passes = 1.5;
/// Products of attention in backward by those in forward; one of them computes scores again.
constexpr double backward_attention = 2.5, again_of_backward = 0.2;
/// Exchanges of less than this share of a unit's output are of norms and biases.
constexpr double vector_share = 1.0 / 64.0;

Phase& largest(Phases& phases) {
  return *std::max_element(phases.begin(), phases.end(),
                           [](const Phase& a, const Phase& b) { return a.flops < b.flops; });
}

/// Changes the units of a model to what a stack computes.
class Computed {
 public:
  Computed(const Stack& stack, ModelDescription& model) : stack_(stack), model_(model) {}

  void change() {
    for (std::size_t u = 0; u < model_.units.size(); ++u) {
      UnitDescription& unit = model_.units[u];
      // What sums over micro-batches cost others is Stack::accumulate_traffic.
      unit.can_add_gradients = unit.can_add_gradients && is_ostrakon(stack_);
      for (Phases* phases : {&unit.forward, &unit.backward, &unit.deferral.backward_at_once})
        for (Phase& phase : *phases) {
          if (phase.then) change(*phase.then, unit);
          if (stack_.attention_in_memory) {
            const bool goes_backward = phases != &unit.forward;
            attend_in_memory(phase.flops, phase.work, goes_backward);
            attend_in_memory(phase.recompute_flops, phase.recompute_work, goes_backward);
          }
        }
      if (stack_.recomputes_all)
        for (Phase& phase : unit.forward) {
          phase.recompute_flops = phase.flops;
          phase.recompute_work = phase.work;
          phase.recomputes = true;
        }
      const bool is_block = u > 0 && u + 1 < model_.units.size();
      if (is_block) change_block(unit);
      if (u + 1 == model_.units.size() && stack_.keeps_logits && model_.tensor_ranks > 1)
        keep_logits(unit);
    }
  }

 private:
  /// Bytes of the unit's output on all tensor ranks together.
  double output_bytes(const UnitDescription& unit) const {
    return static_cast<double>(unit.output_bytes) * model_.tensor_ranks;
  }

  void change(Exchange& exchange, const UnitDescription& unit) const {
    if (exchange.span.axis != Axis::tensor) return;
    const auto bytes = static_cast<double>(exchange.whole_bytes());
    if (stack_.whole_vectors && bytes < vector_share * output_bytes(unit))
      exchange.empty_if_even = true;
    if (stack_.exchange_bits > 0.0)
      exchange.element_bytes =
          std::min(exchange.element_bytes, static_cast<std::int64_t>(stack_.exchange_bits) / 8);
  }

  /// Two products over all queries and keys, and their gradients, with scores in 16 bits between.
  void attend_in_memory(double& flops, KernelWork& work, bool goes_backward) const {
    if (!(work.attention_flops > 0.0)) return;
    const double with_whole = 2.0 * work.attention_flops;  // attention_flops has the causal half
    const double products = with_whole * (goes_backward ? 1.0 - again_of_backward : 1.0);
    const double width = work.attention_flops / work.attention_by_width;
    // The flops of forward are 2 s^2 d for each head of width d, so these are 2 bytes for each
    // score.
    const double scores = work.attention_by_width / (goes_backward ? backward_attention : 1.0);
    flops += products - work.attention_flops;
    work.products_by_width += products / width;
    work.products += goes_backward ? 4.0 : 2.0;
    work.attention_flops = work.attention_by_width = 0.0;
    const double passes = score_passes + (stack_.dropout ? dropout_passes : 0.0);
    work += plan::row_work(scores * passes * (goes_backward ? backward_score_passes : 1.0), 4.0);
  }

  void change_block(UnitDescription& unit) const {
    double passes = stack_.dropout ? 1.0 : 0.0;
    if (stack_.whole_rows) passes += row_passes * (1.0 - 1.0 / model_.tensor_ranks);
    Phase& forward = largest(unit.forward);
    KernelWork all;
    for (const Phase& phase : unit.forward) all += phase.work;
    double products = 0.0;
    for (const Phase& phase : unit.forward) products += phase.flops - phase.work.attention_flops;
    const KernelWork added = plan::row_work(output_bytes(unit) * passes, passes > 0.0 ? 2.0 : 0.0);
    forward.work += added;
    if (forward.recompute_flops > 0.0) forward.recompute_work += added;
    for (Phases* phases : {&unit.backward, &unit.deferral.backward_at_once}) {
      if (phases->empty()) continue;
      Phase& backward = largest(*phases);
      backward.work += 2.0 * added;
      const double attention = stack_.again_attention * all.attention_flops;
      KernelWork again;
      again.products = stack_.again_products * all.products;
      again.products_by_width = stack_.again_products * all.products_by_width;
      again.flops_in_8_bits = stack_.again_products * all.flops_in_8_bits;
      again.in_8_bits_by_width = stack_.again_products * all.in_8_bits_by_width;
      again.attention_flops = attention;
      again.attention_by_width = stack_.again_attention * all.attention_by_width;
      again.row_bytes = stack_.again_rows * all.row_bytes;
      again.row_kernels = stack_.again_rows * all.row_kernels;
      again.activations = stack_.again_rows * all.activations;
      backward.flops += stack_.again_products * products + attention;
      backward.work += again;
    }
  }

  static void keep_logits(UnitDescription& unit) {
    Phase& last = largest(unit.backward);
    const double again = std::min(plan::flops(unit.forward), last.flops);
    if (again <= 0.0) return;
    last.work.products_by_width *= (last.flops - again) / last.flops;
    last.flops -= again;
    last.work.products = std::max(0.0, last.work.products - 1.0);
  }

  const Stack& stack_;
  ModelDescription& model_;
};

}  // namespace

const std::vector<StackKey>& stack_keys() {
  static const std::vector<StackKey> all = [] {
    std::vector<StackKey> keys;
    const auto number = [&](const char* key, double Stack::*member, const char* what,
                            double most = 1e3, double unit = 1.0) {
      keys.push_back({key, member, nullptr, unit, 0.0, most, what});
    };
    const auto flag = [&](const char* key, bool Stack::*member, const char* what) {
      keys.push_back({key, nullptr, member, 1.0, 0.0, 1.0, what});
    };
    number("row_traffic", &Stack::row_traffic,
           "bytes that kernels without products read and write, as a multiple of Ostrakon's");
    number("row_kernels", &Stack::row_kernels, "the number of these kernels, likewise");
    number("expert_row_traffic", &Stack::expert_row_traffic,
           "row_traffic besides, in units with experts");
    number("rounding_traffic", &Stack::rounding_traffic,
           "row_traffic besides, and kernels, of rounding operands of products to 8 bits");
    number("update_traffic", &Stack::update_traffic, "bytes of updates, likewise");
    number("accumulate_traffic", &Stack::accumulate_traffic,
           "bytes of sums over micro-batches, likewise; 0: products add them up");
    number("convert_traffic", &Stack::convert_traffic,
           "bytes of conversions between dtypes, likewise");
    number("launch_microseconds", &Stack::launch_seconds,
           "of each kernel, besides the machine's own", 1e6, 1e-6);
    number("attention_rate", &Stack::attention_rate,
           "as a multiple of the machine's rate of attention");
    keys.back().least = 1e-3;
    number("slowdown", &Stack::slowdown,
           "of computing beside collectives, as a multiple of the machine's");
    flag("attention_in_memory", &Stack::attention_in_memory,
         "attention by products over all queries and keys, with scores in memory");
    flag("dropout", &Stack::dropout, "dropout after attention and MLP, and of scores in memory");
    number("again_products", &Stack::again_products,
           "share of a block's products that backward computes again, where the deck keeps all",
           1.0);
    number("again_rows", &Stack::again_rows, "the same of kernels without products", 1.0);
    number("again_attention", &Stack::again_attention, "the same of attention", 1.0);
    flag("recomputes_all", &Stack::recomputes_all,
         "blocks that are computed again include their last product");
    flag("keeps_logits", &Stack::keeps_logits,
         "with tensor ranks, logits are kept for backward instead of computed again");
    flag("autocast", &Stack::autocast,
         "parameters are gathered in fp32, and converted in each pass");
    number("sum_bits", &Stack::sum_bits, "most of each element in sums of gradients; 0: any", 64.0);
    number("exchange_bits", &Stack::exchange_bits,
           "most of each element that tensor ranks exchange; 0: any", 64.0);
    flag("reduces_once", &Stack::reduces_once,
         "gradients of all micro-batches are summed over ranks together");
    flag("reduces_at_end", &Stack::reduces_at_end, "gradients are summed when backward is done");
    flag(
        "all_reduces", &Stack::all_reduces,
        "gradients are summed over replicas by one all-reduce, and not gathered at the step's end");
    flag("all_reduce_trees", &Stack::all_reduce_trees,
         "double trees over nodes, where they are faster than rings");
    flag("hides_updates", &Stack::hides_updates,
         "updated parameters are gathered behind the next forward");
    number("update_calls", &Stack::update_calls,
           "calls that gather a unit's updated parameters, one for each rank at most", 1e6);
    flag("exchange_rings", &Stack::exchange_rings,
         "tensor ranks sum by rings instead of an all-to-all");
    flag("exchanges_in_order", &Stack::exchanges_in_order,
         "nothing is computed during exchanges of tensor ranks");
    number("exchange_exposed", &Stack::exchange_exposed,
           "share of the time of these exchanges that products do not hide", 1.0);
    flag("whole_rows", &Stack::whole_rows, "tensor ranks all compute norms of all rows");
    flag("whole_vectors", &Stack::whole_vectors,
         "tensor ranks all have the vectors of norms and biases");
    flag("context_ring", &Stack::context_ring, "keys and values are passed on behind attention");
    flag("blocking_messages", &Stack::blocking_messages,
         "ranks compute nothing during messages between stages");
    return keys;
  }();
  return all;
}

bool is_ostrakon(const Stack& stack) {
  const Stack own;
  return std::all_of(stack_keys().begin(), stack_keys().end(), [&](const StackKey& key) {
    return key.flag != nullptr ? stack.*key.flag == own.*key.flag
                               : stack.*key.number == own.*key.number;
  });
}

Policy planned_by(const Stack& stack, Policy policy, const ModelDescription& model) {
  // Backward must not wait for sums that begin when it has ended.
  if (stack.reduces_at_end) policy.in_flight_reductions = static_cast<int>(model.units.size());
  return policy;
}

ModelDescription rounded_by(const Stack& stack, ModelDescription model,
                            const ModelDescription& as_stored) {
  const auto scale = [&](Phases& phases, const Phases& stored) {
    for (std::size_t p = 0; p < phases.size(); ++p)
      for (KernelWork Phase::*const work : {&Phase::work, &Phase::recompute_work}) {
        KernelWork& rounds = phases[p].*work;
        const KernelWork& other = stored.at(p).*work;
        const auto times = [&](double own, double less) {
          return less + stack.rounding_traffic * (own - less);
        };
        rounds.row_bytes = times(rounds.row_bytes, other.row_bytes);
        rounds.row_kernels = times(rounds.row_kernels, other.row_kernels);
      }
  };
  for (std::size_t u = 0; u < model.units.size(); ++u) {
    UnitDescription& unit = model.units[u];
    const UnitDescription& stored = as_stored.units.at(u);
    scale(unit.forward, stored.forward);
    scale(unit.backward, stored.backward);
    scale(unit.deferral.backward_at_once, stored.deferral.backward_at_once);
  }
  return model;
}

ModelDescription computed_by(const Stack& stack, ModelDescription model, const Policy& policy) {
  const bool again =
      stack.again_products > 0.0 || stack.again_rows > 0.0 || stack.again_attention > 0.0;
  require(!again || policy.activation_checkpointing.every == 0,
          "stack.again_products = ", stack.again_products, ", again_rows = ", stack.again_rows,
          " and again_attention = ", stack.again_attention,
          " are of steps that keep activations, and memory.activation_checkpointing computes "
          "blocks again; expected one of both");
  Computed(stack, model).change();
  return model;
}

void order_as(const Stack& stack, StepPlan& plan) {
  int last_backward = -1, exchange = -1;
  for (int a = 0; a < static_cast<int>(plan.actions.size()); ++a) {
    Action& action = plan.actions[static_cast<std::size_t>(a)];
    if (action.kind == Kind::backward) last_backward = a;
    if (!stack.exchanges_in_order) continue;
    if (plan::is_phase(action.kind) && exchange >= 0) {
      action.waits.push_back(exchange);
      exchange = -1;
    }
    if (action.kind == Kind::exchange && action.span.axis == Axis::tensor) exchange = a;
  }
  if (!stack.reduces_at_end || last_backward < 0) return;
  // A sum frees the buffers of its micro-batch, which the backward of a later one needs.
  std::set<std::tuple<int, Axis, int, int>> summed;  // units, and spans
  for (const Action& action : plan.actions)
    require(action.kind != Kind::reduce_scatter ||
                summed.emplace(action.unit, action.span.axis, action.span.ranks, action.span.stride)
                    .second,
            "stack.reduces_at_end = 1: gradients are summed over ranks when all backward is done, "
            "and this deck sums those of each micro-batch; expected parallel.accumulation = "
            "reduce_last");
  for (Action& action : plan.actions)
    if (action.kind == Kind::reduce_scatter || action.kind == Kind::gather_gradients) {
      action.waits.push_back(last_backward);
      return;  // the others are behind it on their stream
    }
}

}  // namespace ostrakon::simulate
